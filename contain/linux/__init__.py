"""The Linux backend. Read `init/wire.h` and `init/main.c` first, then `backend`."""
