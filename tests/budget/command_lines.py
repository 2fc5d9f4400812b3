"""Command lines as people and agents type them, and the class of each: ``name lane min..want`` and ``!`` for resizable.

``*`` for want: as many as the policy gives one job. A line is split as a shell would.
"""

from __future__ import annotations

TABLE = """
test full 1..*         | vitest
test full 1..*         | vitest run
test full 1..*         | npx vitest run src/
test light 0..0        | npx -y vitest run src/a.test.ts
test light 0..0        | npx vitest@3.2.4 run src/a.test.ts src/b.spec.tsx
test light 0..0        | pnpm vitest run packages/core/src/deep/x.test.ts --reporter=verbose
test light 0..0        | pnpm exec vitest run -t 'adds two' src/a.test.ts
test full 1..*         | vitest run -t 'adds two'
test full 1..*         | vitest run 'src/**/*.test.ts'
test full 1..*         | vitest run src/a.test.ts src
test full 1..*         | vitest run --exclude src/a.test.ts
test full 1..*         | vitest run button
test full 4..4         | vitest run --maxWorkers=4
test full 4..4         | vitest run --maxWorkers 4
test full 1..*         | vitest run --maxWorkers=50%
serve server 0..0      | vitest --watch
serve server 0..0      | npx vitest watch
serve server 0..0      | vitest --ui
test full 1..*         | vitest --watch=false
other full 1..1        | vitest --version
other full 1..1        | vitest list
test full 1..*         | yarn jest
test full 1..*         | npx jest --ci --coverage
test light 0..0        | npx jest src/__tests__/a.test.js
test light 0..0        | node --max-old-space-size=8192 ./node_modules/.bin/jest src/a.test.js
test full 1..*         | node node_modules/jest/bin/jest.js
test full 1..1         | jest --runInBand
test full 1..1         | jest -i
test full 3..3         | jest --maxWorkers=3
test full 2..2         | jest -w 2
serve server 0..0      | jest --watchAll
test full 1..*         | jest --testPathIgnorePatterns src/a.test.js
test full 1..*         | pytest
test full 1..*         | pytest tests/
test full 1..*         | python -m pytest tests
test full 1..*         | .venv/bin/python3.11 -X dev -m pytest -q
test light 0..0        | pytest tests/unit/test_job.py
test light 0..0        | pytest tests/unit/test_job.py::TestJob::test_name -x
test light 0..0        | pytest -x -k 'name and not slow'
test light 0..0        | python3 -m pytest -kname
test full 1..*         | pytest -n auto
test full 1..*         | pytest -n auto tests/unit/test_job.py
test full 8..8         | pytest -n 8
test full 8..8         | pytest -n8 --dist loadgroup
test full 1..1         | pytest -n 0 tests
test full 1..*         | pytest --cov tests/test_a.py
test full 1..*         | pytest --ignore tests/test_a.py
test full 1..*         | uv run pytest -n auto
test light 0..0        | uv run --with hypothesis pytest tests/test_a.py
test full 1..*         | uv run -m pytest
test full 1..*         | uvx --from pytest pytest
test full 1..*         | poetry run pytest
test full 1..*         | pipenv run pytest tests
test full 1..*         | coverage run -m pytest
test full 1..*         | python -m coverage run -m pytest tests
test full 1..*         | conda run -n env pytest
test full 1..1         | python -m unittest discover
test full 1..*         | python manage.py test
serve server 0..0      | python manage.py runserver 0.0.0.0:8000
serve server 0..0      | python -m http.server 8000
other full 1..1        | python train.py
other full 1..1        | python -c 'import vitest'
typecheck light 0..0   | npx tsc --noEmit
typecheck light 0..0   | tsc -p tsconfig.build.json
typecheck light 0..0   | npx -p typescript@5.6 tsc --noEmit
typecheck light 0..0   | node ./node_modules/typescript/bin/tsc --noEmit
typecheck full 1..1    | env CI=1 pnpm -C web exec tsc -b
typecheck full 1..1    | tsc --build --force
serve server 0..0      | tsc -w
typecheck full 1..4    | npx tsgo --noEmit
typecheck light 0..0   | vue-tsc --noEmit
typecheck full 1..1    | mypy --strict .
typecheck full 1..1    | npx pyright
typecheck light 0..0   | pnpm --filter web typecheck
typecheck light 0..0   | pnpm --filter=@scope/web run typecheck
script full 1..*       | pnpm --filter './packages/*' typecheck
script full 1..*       | pnpm -r typecheck
script full 1..*       | pnpm typecheck
script full 1..*       | pnpm -r exec tsc --noEmit
lint full 1..2         | npx eslint .
lint light 0..0        | npx eslint src/a.ts src/b.ts
lint full 1..2         | eslint 'src/**/*.ts'
lint full 4..4         | eslint --concurrency 4 .
lint full 1..2         | eslint --ext .ts src
lint light 0..0        | ruff check contain/job.py
lint full 1..2         | ruff check .
format light 0..0      | ruff format contain/job.py
format full 1..1       | npx prettier --write .
format light 0..0      | npx prettier --check src/a.ts
lint full 1..2         | golangci-lint run ./...
script full 1..*       | turbo run build test
script full 4..4       | npx turbo run build --concurrency=4
script full 1..*       | turbo run test --filter=web
serve server 0..0      | turbo run dev
serve server 0..0      | turbo watch build
script full 3..3       | nx run-many -t test --parallel=3
serve server 0..0      | nx serve shop
serve server 0..0      | next dev --turbopack
serve server 0..0      | npx next dev -p 3001
build long 1..*        | next build
lint full 1..2         | next lint
serve server 0..0      | next start
serve server 0..0      | vite
serve server 0..0      | vite dev --port 5173
serve server 0..0      | npx vite preview
bundle full 1..2       | vite build
serve server 0..0      | vite build --watch
bundle full 1..2       | webpack --mode production
serve server 0..0      | webpack serve
serve server 0..0      | npx expo start
compile full 1..*!     | cargo build
compile full 1..*!     | cargo +nightly check --workspace
compile full 1..*!     | cargo clippy --all-targets -- -D warnings
test full 1..*!        | cargo test --workspace
compile full 4..4      | cargo build -j4
compile full 4..4      | cargo build --release --jobs 4
compile full 1..*!     | cargo b -p core
serve server 0..0      | cargo watch -x check
other full 1..1        | cargo add serde
other full 1..1        | cargo --version
format full 1..1       | cargo fmt
compile full 1..*      | go build ./...
test full 1..*         | go test ./...
test full 2..2         | go test -p 2 ./...
test full 1..*         | go test -run TestX -count=1 ./pkg/a
other full 1..1        | go env GOPATH
script full 1..*!      | make
script full 8..8       | make -j8
script full 8..8       | make -j 8 all
script full 6..6       | make -kj6
script full 8..8       | make -C build --jobs=8 install
script full 1..*!      | make -j test
script full 1..*!      | gmake -C src -f Makefile.new
compile full 1..*!     | ninja
compile full 1..*!     | ninja -C out/Release chrome
compile full 12..12    | ninja -j12 -C out
other full 1..1        | ninja -t clean
compile full 1..*!     | cmake --build build
compile full 4..4      | cmake --build build -j4
compile full 4..4      | cmake --build build --parallel 4 --target all
other full 1..1        | cmake -S . -B build -G Ninja
test full 8..8         | ctest -j8 --output-on-failure
compile full 1..*      | meson compile -C build
build long 1..*        | ./gradlew build
build long 1..*        | ./gradlew :app:assembleDebug
test full 1..*         | ./gradlew clean test --tests 'a.B'
build long 3..3        | gradle build --max-workers=3
serve server 0..0      | ./gradlew bootRun
serve server 0..0      | gradle test --continuous
other full 1..1        | ./gradlew tasks
build long 1..*        | mvn -q clean install
build long 4..4        | mvn -T 4 package
build long 1..*        | mvn -T 1C package
test full 1..*         | ./mvnw test
build long 1..*        | bazel build //...
test full 6..6         | bazel test --jobs=6 //pkg:all
other full 1..1        | bazel query //...
browser full 1..*      | npx playwright test
browser full 2..2      | playwright test --workers=2 e2e/a.spec.ts
install full 1..2      | npx playwright install --with-deps chromium
browser full 1..*      | npx cypress run
build long 1..*        | xcodebuild -scheme App -destination 'platform=iOS Simulator,name=iPhone 17' build
test full 4..4         | xcodebuild test -scheme App -jobs 4
other full 1..1        | xcodebuild -version
build long 1..*        | docker build -t app:dev -f docker/Dockerfile .
build long 1..*        | docker buildx build --platform linux/arm64 .
build long 1..*        | docker compose -f ci.yml build
serve server 0..0      | docker compose up
other full 1..1        | docker compose up -d
other full 1..1        | docker ps -a
render long 1..*       | ffmpeg -i in.mp4 -c:v libx264 out.mp4
render long 4..4       | ffmpeg -threads 4 -i in.mp4 out.webm
render long 1..*       | npx remotion render src/index.ts Main out.mp4
install full 1..2      | npm ci
install full 1..2      | pnpm install --frozen-lockfile
install full 1..2      | yarn
install full 1..2      | pip install -e .
install full 1..2      | python -m pip install -U pip
script full 1..*       | npm test
script full 1..*       | npm t
script full 1..*       | npm run build
script full 1..*       | npm run lint --workspaces
script full 1..*       | pnpm check
script full 1..*       | yarn workspace web build
script full 1..*       | yarn test src/a.test.ts
serve server 0..0      | npm run dev
serve server 0..0      | pnpm dev
serve server 0..0      | npm start
other full 1..1        | npm view react version
other full 1..1        | npm --version
test full 1..*         | bun test
script full 1..*       | bash -lc 'cd x && npm test'
script full 1..*       | sh -c 'vitest run src/a.test.ts'
script full 1..*       | /bin/bash -euo pipefail -c 'pytest -x'
script full 1..*       | bash ./deploy.sh -i
script full 1..*       | zsh -ic 'nvm use && npm test'
script full 1..*       | ./scripts/check.sh
script full 1..*       | just test
script full 1..*       | tox -e py311
script full 1..*       | pre-commit run --all-files
script full 1..*       | npx -c 'vitest run && eslint .'
script full 1..*       | xargs -P8 gcc -c
none none 0..0         | bash -i
none none 0..0         | vim src/a.test.ts
none none 0..0         | less jest.log
none none 0..0         | top
none none 0..0         | ssh build@host make -j8
none none 0..0         | sudo -u nobody vim x
none none 0..0         | tmux attach
none none 0..0         | python -i x.py
other full 1..1        | grep vitest
other full 1..1        | grep -rn 'pytest -n auto' .
other full 1..1        | cat jest.config.js
other full 1..1        | git commit -m 'vitest'
other full 1..1        | git -C web log --grep=make
other full 1..1        | rg 'next dev' src/server.test.ts
other full 1..1        | echo make -j8
other full 1..1        | rm -rf node_modules/.vite
other full 1..1        | ls node_modules/.bin/vitest
other full 1..1        | cp vitest.config.ts cargo
other full 1..1        | which make
other full 1..1        | pkill -f vitest
other full 1..1        | true
other full 1..1        | curl -s localhost:3000/vite
other full 1..1        | gh run view --log
other full 1..1        | tail -n 40 make.log
other full 1..1        | env
other full 1..1        | node scripts/vitest.config.js
other full 1..1        | vitestish run
script full 4..4       | env -i PATH=/bin CC=gcc nice -n 10 make -j4
script full 4..4       | CC=clang make -j4
script full 4..4       | timeout -k 5 600 make -j4
test full 1..*         | timeout 10m npx vitest run
script full 4..4       | nohup setsid make -j4
script full 1..*!      | nice make
test full 1..*         | time -f %e pytest
test full 1..*         | stdbuf -oL -eL pytest
script full 1..*!      | sudo -u build -E make
script full 1..*!      | taskset -c 0-3 make
script full 1..*!      | flock /tmp/lock make
script full 1..*!      | ionice -c 3 nice -n 19 make
test full 1..*         | xvfb-run -a -s '-screen 0 1x1x8' npx jest
test full 1..*         | env -S 'pytest tests'
test light 0..0        | env -u CI -- pytest tests/test_a.py
test full 1..*         | bundle exec rspec
test full 1..*         | mise exec -- pytest
test full 1..*         | corepack pnpm exec vitest run
other full 1..1        | timeout 5 sleep 10
"""


def rows() -> list[tuple[str, str]]:
    """(expected, command line), in the order of the table."""
    cells = (line.partition("|") for line in TABLE.strip().splitlines())
    return [(" ".join(expected.split()), command.strip()) for expected, _, command in cells]
