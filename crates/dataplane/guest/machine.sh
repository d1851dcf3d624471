#!/usr/bin/env bash
# Compiles the guest of QEMU's machines in the tests, a kernel for Multiboot.
#
#   machine.sh machine.c KERNEL
set -euo pipefail

gcc -m32 -std=gnu11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-pic -no-pie -fno-stack-protector \
	-fno-asynchronous-unwind-tables -fcf-protection=none -nostdlib -static -Wl,-m,elf_i386 \
	-Wl,--build-id=none -Wl,-Ttext=0x100100 -Wl,--section-start=.multiboot=0x100000 -Wl,-e,start \
	-o "$2" "$1"
