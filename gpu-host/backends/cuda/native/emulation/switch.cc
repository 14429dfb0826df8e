// The switch on x86-64: saves the callee-saved registers on the old stack and restores those of the new stack (System V ABI).
#include "switch.h"

#ifdef __x86_64__
#ifdef __APPLE__
#define SYMBOL "_emulationSwitch"
#else
#define SYMBOL "emulationSwitch"
#endif
asm(".text\n"
    ".globl " SYMBOL "\n" SYMBOL ":\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n");
#endif
