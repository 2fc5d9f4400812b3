/* faults.c: what a test has asked to go wrong, and its commands: "word key=value ...". */
#include <errno.h>
#include <stdlib.h>

#include "server.h"

enum { RULES = 64 };

static struct rule rules[RULES];
static bool deny_all;

static bool gated(const char *call) {
    return strncmp(call, "host_", 5) && strncmp(call, "k", 1) && strncmp(call, "fcntl", 5) &&
           strcmp(call, "sysctlbyname") && strcmp(call, "attach");
}

struct rule *rule_for(const char *call, pid_t pid, int64_t flavour) {
    for (int i = 0; i < RULES; i++) {
        struct rule *rule = &rules[i];
        if (!rule->times || strcmp(rule->call, call)) continue;
        if ((rule->pid && rule->pid != pid) || (rule->flavour && rule->flavour != flavour)) continue;
        if (rule->times > 0) rule->times--;
        return rule;
    }
    return NULL;
}

int failure_of(const char *call, pid_t pid, int64_t flavour) {
    const struct rule *rule = rule_for(call, pid, flavour);
    if (rule) return (int)rule->error;
    bool signals = !strcmp(call, "kill") || !strcmp(call, "killpg");
    return deny_all && (gated(call) || signals) ? EPERM : 0;
}

struct command {
    char word[24], call[24], name[48], value[96];
    int64_t pid, flavour, error, bytes, keep, times, ms, uid, seconds, id, puniqueid, opidv, early;
};

static bool take(struct command *c, const char *key, const char *value) {
    const struct {
        const char *key;
        int64_t *to;
    } numbers[] = {{"pid", &c->pid}, {"flavour", &c->flavour}, {"errno", &c->error}, {"bytes", &c->bytes},
                   {"keep", &c->keep}, {"times", &c->times}, {"ms", &c->ms}, {"uid", &c->uid},
                   {"seconds", &c->seconds}, {"id", &c->id}, {"puniqueid", &c->puniqueid}, {"opidv", &c->opidv},
                   {"early", &c->early}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *end;
        if (strcmp(numbers[i].key, key)) continue;
        *numbers[i].to = strtoll(value, &end, 10);
        return *value && !*end;
    }
    if (!strcmp(key, "call")) snprintf(c->call, sizeof c->call, "%s", value);
    else if (!strcmp(key, "name")) snprintf(c->name, sizeof c->name, "%s", value);
    else if (!strcmp(key, "value")) snprintf(c->value, sizeof c->value, "%s", value);
    else return false;
    return true;
}

/* "deny all" is a word of two; everything else after the first is key=value. */
static bool parse(const char *text, struct command *c) {
    char copy[TEXT_MOST], *rest;
    snprintf(copy, sizeof copy, "%s", text);
    *c = (struct command){.times = -1, .puniqueid = -1, .opidv = -1};
    char *word = strtok_r(copy, " ", &rest);
    if (!word) return false;
    snprintf(c->word, sizeof c->word, "%s", word);
    while ((word = strtok_r(NULL, " ", &rest))) {
        char *equals = strchr(word, '=');
        if (!equals && !strcmp(c->word, "deny") && !strcmp(word, "all")) {
            snprintf(c->word, sizeof c->word, "deny all");
            continue;
        }
        if (!equals) return false;
        *equals = 0;
        if (!take(c, word, equals + 1)) return false;
    }
    return true;
}

static int add_rule(const struct command *c, const char *call, int64_t error, int64_t amount) {
    for (int i = 0; i < RULES; i++) {
        if (rules[i].times) continue;
        rules[i] = (struct rule){.pid = (pid_t)c->pid, .flavour = c->flavour, .error = error, .amount = amount,
                                 .times = (int)c->times};
        snprintf(rules[i].call, sizeof rules[i].call, "%s", call);
        return 0;
    }
    return ENOSPC;
}

static int clear(void) {
    memset(rules, 0, sizeof rules);
    deny_all = stale_vm = false;
    reset_puniqueid = with_opidversion = true;
    forget_overrides();
    for (struct birth *birth = newest; birth; birth = birth->older) {
        let_go(birth);
        birth->hidden = birth->hide_next_child = birth->bumps = 0;
        birth->attach_lost = false;
        birth->foreign = 0;
        birth->joins = 0;
    }
    return 0;
}

/* Commands about one process. EINVAL: no such command. */
static int about(const struct command *c, struct birth *birth, struct reply *r) {
    int once = c->times < 0 ? 1 : (int)c->times;
    if (!strcmp(c->word, "attach-lost")) birth->attach_lost = true;
    else if (!strcmp(c->word, "hide")) birth->hidden = once;
    else if (!strcmp(c->word, "hide-next-child")) birth->hide_next_child = once;
    else if (!strcmp(c->word, "bump")) birth->bumps = once;
    else if (!strcmp(c->word, "reuse")) renumber(birth);
    else if (!strcmp(c->word, "foreign") && c->uid > 0) birth->foreign = (uid_t)c->uid;
    else if (!strcmp(c->word, "hold-exit") && c->ms) return hold(birth, c->ms, c->early);
    else if (!strcmp(c->word, "release-exit")) let_go(birth);
    else if (!strcmp(c->word, "late-member") && c->id > 0) birth->joins = (uint64_t)c->id;
    else if (!strcmp(c->word, "coalition") || (!strcmp(c->word, "coalition-join") && c->id > 0)) {
        birth->coalition = c->id ? (uint64_t)c->id : next_coalition();
        coalition_joined(birth->coalition);
        r->value = (int64_t)birth->coalition;
    } else return EINVAL;
    return 0;
}

static int mode(const struct command *c) {
    if (c->puniqueid != -1) reset_puniqueid = c->puniqueid != 12;
    if (c->opidv != -1) with_opidversion = c->opidv;
    return 0;
}

static int carry_out(const struct command *c, struct reply *r) {
    if (!strcmp(c->word, "deny all")) return deny_all = true, 0;
    if (!strcmp(c->word, "deny") && c->flavour) return add_rule(c, "pidinfo", EPERM, 0);
    if (!strcmp(c->word, "short") && c->flavour) return add_rule(c, "short", 0, c->bytes);
    if (!strcmp(c->word, "truncate")) return add_rule(c, "truncate", 0, c->keep);
    if (!strcmp(c->word, "fail") && c->call[0] && c->error > 0) return add_rule(c, c->call, c->error, 0);
    if (!strcmp(c->word, "mode")) return mode(c);
    if (!strcmp(c->word, "step")) return clock_step_us += c->seconds * 1000000, 0;
    if (!strcmp(c->word, "reboot")) return new_boot_session(), 0;
    if (!strcmp(c->word, "stale")) return stale_vm = true, 0;
    if (!strcmp(c->word, "page-size") && c->bytes > 0) return page_bytes = c->bytes, 0;
    if (!strcmp(c->word, "sysctl") && c->name[0]) return override_sysctl(c->name, c->value) ? 0 : ENOSPC;
    if (!strcmp(c->word, "clear")) return clear();
    if (!strcmp(c->word, "end")) return r->value = end_all(), 0;
    if (!strcmp(c->word, "lineage")) return r->value = lineage, 0;
    if (!strcmp(c->word, "lost")) return r->value = events_lost, 0;
    struct seen seen;
    struct birth *birth = look((pid_t)c->pid, &seen);
    if (!c->pid) return EINVAL;
    return birth ? about(c, birth, r) : ESRCH;
}

void answer_control(const struct request *q, struct reply *r) {
    struct command command;
    r->error = parse(q->text, &command) ? carry_out(&command, r) : EINVAL;
}
