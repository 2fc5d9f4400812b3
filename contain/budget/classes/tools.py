"""The table of tools: what each does by default, by which word it does something else, and how it says how wide."""

from __future__ import annotations

from contain.budget.classes.words import listed, plain_files
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contain.budget.classes.words import Words

MOST_TESTS = 8
"""Named test files that are still a focused check."""
MOST_FILES = 64
"""Named files that a linter or formatter still reads in seconds."""

JS_TEST_ENDS = tuple(
    f".{word}.{end}"
    for word in ("test", "spec")
    for end in ("ts", "tsx", "js", "jsx", "mts", "cts", "mjs", "cjs")
)

OPTIONAL_NUMBER = frozenset(("-j", "--jobs", "--parallel", "--concurrency"))
"""Job options that may stand alone: the next word is theirs only if it is a number."""


class Tool(Record):
    """One tool's grammar, as far as its cost depends on it.

    ``verbs``: a first name, two first names or an option -> kind. ``watch``: options that keep it running. ``jobs``:
    options that say how many workers; ``single``: that there is one. ``focus``: which rule makes a call a focused one.
    """

    kind: str
    verbs: Mapping[str, str] = {}
    watch: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    single: tuple[str, ...] = ()
    valued: frozenset[str] = frozenset()
    focus: str = ""
    jobserver: bool = False
    """It takes tokens from a make jobserver, so a running one can be made wider and narrower."""
    bare_watch: bool = False
    """Without a verb, on a terminal, it watches."""
    lone: bool = False
    """It never starts a second worker."""
    detached: tuple[str, ...] = ()
    """Options with which a server goes somewhere else, and the command ends."""


def _verbs(text: str) -> Mapping[str, str]:
    """``"build=compile b=compile"``; a ``+`` in a verb is a blank."""
    return {verb.replace("+", " "): kind for verb, _, kind in (pair.partition("=") for pair in text.split())}


def _tool(
    kind: str,
    verbs: str = "",
    *,
    watch: str = "",
    jobs: str = "",
    single: str = "",
    valued: str = "",
    focus: str = "",
) -> Tool:
    return Tool(
        kind=kind,
        verbs=_verbs(verbs),
        watch=tuple(watch.split()),
        jobs=tuple(jobs.split()),
        single=tuple(single.split()),
        valued=listed(valued) | listed(jobs) - OPTIONAL_NUMBER,
        focus=focus,
    )


def _same(names: str, tool: Tool) -> Mapping[str, Tool]:
    return dict.fromkeys(names.split(), tool)


_VITEST = _tool(
    "test", "watch=serve dev=serve list=other init=other",
    watch="-w --watch --ui", jobs="--maxWorkers --max-workers",
    valued="-t --testNamePattern -c --config -r --root --dir --reporter --outputFile --project --pool --environment"
    " --shard --mode --testTimeout --hookTimeout --bail --retry --exclude --minWorkers --changed --coverage.provider",
    focus="js",
).replace(bare_watch=True)  # fmt: skip
_JEST = _tool(
    "test", watch="--watch --watchAll", jobs="-w --maxWorkers", single="-i --runInBand --run-in-band",
    valued="-t --testNamePattern -c --config --rootDir --roots --reporters --selectProjects --testTimeout --shard --env"
    " --testPathPattern --testPathPatterns --testPathIgnorePatterns --collectCoverageFrom --coverageReporters",
    focus="js",
)  # fmt: skip
_PYTEST = _tool(
    "test", watch="-f --looponfail", jobs="-n --numprocesses",
    valued="-k -m -p -c -o -W -r --ignore --ignore-glob --deselect --rootdir --confcutdir --junitxml --junit-xml --tb"
    " --maxfail --durations --cov --cov-report --cov-config --dist --tx --timeout --basetemp --import-mode --log-level"
    " --override-ini --config-file --color --capture --log-cli-level --maxprocesses",
    focus="py",
)  # fmt: skip
_TSC = _tool(
    "typecheck", "--init=other --showConfig=other", watch="-w --watch",
    valued="-p --project --outDir --target -t --module -m --lib --jsx --moduleResolution --rootDir", focus="project",
)  # fmt: skip
_ESLINT = _tool(
    "lint", "--init=other", jobs="--concurrency",
    valued="-c --config --ext --rule --parser --parser-options -f --format -o --output-file --ignore-path"
    " --ignore-pattern --plugin --rulesdir --max-warnings --cache-location --cache-file --env --global",
    focus="files",
)  # fmt: skip
_FORMATTER = _tool(
    "format", valued="--config --ignore-path --log-level --plugin --parser --line-length -l", focus="files"
)
_CARGO = _tool(
    "other",
    "build=compile b=compile check=compile c=compile clippy=compile run=compile r=compile rustc=compile doc=compile"
    " install=compile fix=compile bench=compile test=test t=test nextest=test miri=test tarpaulin=test watch=serve"
    " fmt=format",
    jobs="-j --jobs",
    valued="-p --package --features -F --bin --example --test --bench --target --target-dir --manifest-path --profile"
    " --color --config -C -Z --exclude --message-format --build-jobs",
).replace(jobserver=True)
_MAKE = _tool(
    "script", jobs="-j --jobs",
    valued="-C --directory -f --file --makefile -I --include-dir -o --old-file -W --what-if -l --load-average --eval",
).replace(jobserver=True)  # fmt: skip
_NINJA = _tool("compile", "-t=other", jobs="-j", valued="-C -f -k -l -t -d -w").replace(jobserver=True)
_CMAKE = _tool("other", "--build=compile --workflow=compile", jobs="-j --parallel",
    valued="-S -B -G -D -C --build --target -t --config --preset --install --prefix",
).replace(jobserver=True)  # fmt: skip
_DOCKER = _tool(
    "other", "build=build bake=build compose+build=build buildx+build=build buildx+bake=build image+build=build"
    " builder+build=build compose+up=serve bud=build",
    valued="-H --host --context -c --config -l --log-level -f --file -p --project-name --profile --env-file",
).replace(detached=("-d", "--detach"))  # fmt: skip
_GRADLE = _tool(
    "build", "test=test check=test clean=other bootRun=serve run=serve tasks=other help=other wrapper=other"
    " projects=other dependencies=other properties=other --stop=other --status=other",
    watch="-t --continuous", jobs="--max-workers",
    valued="-p --project-dir -b -c --init-script -I --gradle-user-home -g --console -x --exclude-task --tests",
)  # fmt: skip
_MAVEN = _tool(
    "build", "test=test clean=other surefire:test=test spring-boot:run=serve jetty:run=serve quarkus:dev=serve"
    " dependency:tree=other help:effective-pom=other",
    jobs="-T --threads", valued="-f --file -pl --projects -P -s --settings -D -rf",
)  # fmt: skip
_BAZEL = _tool(
    "other", "build=build test=test coverage=test run=build mobile-install=build aquery=other query=other",
    jobs="--jobs", valued="-c --config --output_base --output_user_root",
)  # fmt: skip
_PLAYWRIGHT = _tool(
    "other", "test=browser install=install show-report=serve codegen=none open=none",
    watch="--ui", jobs="-j --workers",
    valued="-c --config -g --grep --grep-invert --project --reporter --shard --retries",
)  # fmt: skip
_XCODEBUILD = _tool(
    "build", "test=test test-without-building=test -version=other -list=other -showsdks=other -showBuildSettings=other"
    " -help=other",
    jobs="-jobs",
    valued="-project -workspace -scheme -target -configuration -sdk -destination -derivedDataPath -resultBundlePath"
    " -archivePath -exportPath -only-testing -skip-testing -testPlan -xcconfig -arch -exportOptionsPlist",
)  # fmt: skip
_RUNNER = _tool(
    "script", "dev=serve run+dev=serve watch=serve serve=serve login=other prune=other ls=other graph=other show=other"
    " report=other list=other",
    watch="--watch", jobs="--concurrency --parallel",
    valued="--filter -F --cwd -t --target --targets -p --projects --exclude --output-logs --log-order --cache-dir"
    " --base --head -c --configuration",
)  # fmt: skip

TOOLS: Mapping[str, Tool] = {
    "vitest": _VITEST,
    "jest": _JEST,
    **_same("mocha ava tap uvu", _tool("test", watch="-w --watch", jobs="-j --jobs -c --concurrency", focus="js",
        valued="-g --grep -r --require --reporter --config --timeout -t --spec")),
    **_same("pytest py.test", _PYTEST),
    **_same("unittest nose2", _tool("test", valued="-k -s -p -t").replace(lone=True)),
    **_same("ptw pytest-watch pytest-watcher", _tool("serve")),
    **_same("rspec phpunit pest minitest parallel_rspec paratest", _tool("test", jobs="-n -p --processes")),
    **_same("cypress", _tool("other", "run=browser open=none install=install")),
    **_same("wdio testcafe detox", _tool("browser")),
    "playwright": _PLAYWRIGHT,
    **_same("tsc vue-tsc", _TSC),
    "tsgo": _TSC.replace(focus=""),
    "svelte-check": _tool("typecheck", watch="--watch"),
    **_same("mypy basedmypy pytype ty flow", _tool("typecheck", jobs="-j --num-workers")),
    "dmypy": _tool("serve", "stop=other status=other"),
    **_same("pyright basedpyright", _tool("typecheck", watch="-w --watch", jobs="--threads", valued="-p --project")),
    **_same("eslint stylelint oxlint xo", _ESLINT),
    "biome": _tool("lint", "format=format ci=lint check=lint lint=lint start=other stop=other init=other",
        valued="--config-path --max-diagnostics", focus="files"),
    **_same("flake8 pylint pycodestyle bandit rubocop shellcheck swiftlint ktlint htmlhint markdownlint",
        _tool("lint", jobs="-j --jobs --parallel", valued="--config --rcfile -f --format -e -s", focus="files")),
    "golangci-lint": _tool("other", "run=lint fmt=format", jobs="-j --concurrency"),
    **_same("clang-tidy run-clang-tidy cppcheck", _tool("lint", jobs="-j", valued="-p")),
    "ruff": _tool("lint", "check=lint format=format version=other rule=other config=other",
        valued="--config --select --ignore --output-format --line-length", focus="files"),
    **_same("prettier oxfmt dprint black isort autopep8 yapf gofmt rustfmt clang-format shfmt", _FORMATTER),
    "turbo": _RUNNER,
    **_same("nx lerna rush moon wireit", _RUNNER),
    "vite": _tool("serve", "build=bundle optimize=other", watch="-w --watch", valued="-c --config -m --mode --outDir"),
    "next": _tool("serve", "build=build lint=lint info=other telemetry=other export=build"),
    **_same("nuxt nuxi astro remix gatsby react-router ng vue-cli-service react-scripts svelte-kit docusaurus waku",
        _tool("serve", "build=bundle generate=bundle check=typecheck test=test lint=lint add=other info=other"
              " new=other",
              watch="--watch")),
    "storybook": _tool("serve", "build=bundle init=other"),
    "expo": _tool("other", "start=serve export=bundle run:ios=build run:android=build prebuild=script"),
    **_same("webpack webpack-cli rspack rsbuild", _tool("bundle",
        "serve=serve server=serve dev=serve s=serve watch=serve",
        watch="-w --watch")),
    **_same("rollup tsup tsdown unbuild swc babel microbundle rolldown pkgroll",
        _tool("bundle", watch="-w --watch")),
    "esbuild": _tool("bundle", watch="--watch --serve"),
    "parcel": _tool("serve", "build=bundle watch=serve serve=serve"),
    **_same("tailwindcss sass postcss", _tool("bundle", watch="-w --watch")),
    "deno": _tool("other", "test=test task=script lint=lint fmt=format check=typecheck compile=compile",
        watch="--watch"),
    "cargo": _CARGO,
    **_same("cross", _CARGO),
    "rustc": _tool("compile", valued="-o -C --edition --crate-type -L").replace(jobserver=True),
    **_same("cargo-watch bacon watchexec entr nodemon air reflex ibazel tilt chokidar ts-node-dev", _tool("serve")),
    "go": _tool("other", "build=compile install=compile run=compile vet=compile test=test generate=script", jobs="-p",
        valued="-run -bench -count -timeout -o -tags -ldflags -gcflags -mod -C -coverprofile -cpu -parallel"),
    "gotestsum": _tool("test", watch="--watch"),
    **_same("make gmake bmake", _MAKE),
    **_same("ninja ninja-build samu", _NINJA),
    "cmake": _CMAKE,
    "ctest": _tool("test", jobs="-j --parallel", valued="-R -E -L -C --test-dir --preset"),
    "meson": _tool("other", "compile=compile test=test install=compile", jobs="-j --jobs --num-processes", valued="-C"),
    **_same("scons waf bjam", _tool("compile", jobs="-j --jobs")),
    **_same("gradle gradlew", _GRADLE),
    **_same("mvn mvnw mvnd", _MAVEN),
    **_same("sbt mill ant lein", _tool("build", "run=serve test=test clean=other")),
    **_same("bazel bazelisk buck2 pants", _BAZEL),
    "xcodebuild": _XCODEBUILD,
    "swift": _tool("other", "build=compile test=test run=compile", jobs="-j --jobs"),
    **_same("zig dub stack cabal nimble", _tool("other", "build=compile test=test run=compile", jobs="-j --jobs")),
    "dotnet": _tool("other", "build=compile publish=build test=test run=compile watch=serve restore=install"),
    **_same("flutter dart", _tool("other", "build=build test=test run=serve analyze=lint format=format")),
    **_same("docker podman nerdctl buildah docker-compose", _DOCKER.replace(verbs={**_DOCKER.verbs, "up": "serve"})),
    "skaffold": _tool("build", "dev=serve debug=serve"),
    "ffmpeg": _tool("render", jobs="-threads", valued="-i -c -c:v -c:a -vf -af -f -t -ss -preset -crf -b:v -b:a -map"),
    **_same("HandBrakeCLI x264 x265 melt blender povray", _tool("render", jobs="-t --threads")),
    "remotion": _tool("other", "render=render still=render studio=serve", jobs="--concurrency"),
    **_same("pip pip3", _tool("other", "install=install wheel=install download=install")),
    "uv": _tool("other", "sync=install pip+install=install pip+sync=install add=install lock=install build=compile"),
    **_same("poetry pipenv pdm rye", _tool("other",
        "install=install sync=install add=install update=install build=compile")),
    **_same("bundle composer gem brew apt apt-get dnf conda mamba", _tool("other", "install=install update=install")),
    **_same("just task rake invoke inv tox nox hatch pre-commit lefthook act earthly snakemake nextflow parallel xargs"
            " concurrently npm-run-all run-s run-p script husky lint-staged",
        _tool("script", jobs="-j --jobs")),
    **_same("uvicorn gunicorn hypercorn daphne granian http.server http-server serve live-server webpack-dev-server"
            " metro redis-server postgres mysqld mongod nginx caddy jupyter jupyter-lab jupyter-notebook tensorboard"
            " streamlit ngrok cloudflared puma unicorn", _tool("serve")),
    "su": _tool("none", "-c=script --command=script"),
    "flask": _tool("other", "run=serve"),
    "rails": _tool("other", "server=serve s=serve test=test console=none c=none"),
    **_same("mkdocs hugo jekyll", _tool("other", "serve=serve server=serve build=bundle")),
    **_same("wrangler vercel netlify", _tool("other", "dev=serve build=bundle")),
    "celery": _tool("other", "worker=serve beat=serve"),
    **_same("vi vim nvim view nano emacs emacsclient micro hx helix kak less more most man top htop btop atop nvtop ssh"
            " mosh sftp telnet tmux screen zellij fzf mc ranger nnn lf lazygit lazydocker tig gitui gdb lldb login"
            " watch passwd visudo crontab dialog whiptail psql mysql redis-cli mongosh ipython bpython ptpython irb pry"
            " ghci claude codex gemini aider opencode goose k9s minicom", _tool("none")),
}  # fmt: skip


def is_focused(tool: Tool, words: Words, names: Sequence[str]) -> bool:
    """Whether the call names so little that it needs no unit. ``names`` are without the verb."""
    if tool.focus == "js":
        # A name alone (-t) is not enough: every file is loaded to look for it.
        return plain_files(names, MOST_TESTS) and all(name.endswith(JS_TEST_ENDS) for name in names)
    if tool.focus == "py":
        return _one_process(words) and (
            (plain_files([name.partition("::")[0] for name in names], MOST_TESTS) and _python_tests(names))
            or (not names and any(name.startswith("-k") for name, _ in words.options))
        )
    if tool.focus == "files":
        return plain_files(names, MOST_FILES)
    if tool.focus == "project":
        return not words.has("-b", "--build")
    return False


def _one_process(words: Words) -> bool:
    """`pytest` without xdist: every option that names workers is absent, or names one."""
    return all(
        value is not None and value in ("0", "1", "no")
        for name, value in words.options
        if name in ("-n", "--numprocesses", "--tx", "--dist")
        or (name.startswith("-n") and name[2:].isalnum())
    )


def _python_tests(names: Sequence[str]) -> bool:
    return all(name.partition("::")[0].endswith(".py") for name in names)
