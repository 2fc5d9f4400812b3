/* sanitizer_log.c: linked into a sanitized contain-init by tests, whose standard error is nobody's: reports go to files
 * whose names begin with LOG. Leaks are not looked for: the program allocates nothing and leaves by exit_group. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "log_path=" LOG ":detect_leaks=0:detect_stack_use_after_return=0:handle_segv=1:allow_user_segv_handler=0";
}
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) {
    return "log_path=" LOG ":print_stacktrace=1";
}
