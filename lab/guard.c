/* Arrays between pages that nobody may touch, and a handler that tells who did. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { MOST = 8, PAGE = 65536, GUARD = 16 << 20, STACK = 65536 };

static struct { const char *name; char *all, *data; long pages, count, size; } arrays[MOST];
static char stack[STACK], *base;

/* Memory for an array: its end at the second guard if `late`, else its begin at the first. */
void *lab_map(int at, const char *name, long count, long size, int late)
{
    long pages = (count * size + PAGE - 1) / PAGE * PAGE;
    char *all = mmap(0, pages + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || mprotect(all + GUARD, pages, PROT_READ | PROT_WRITE)) return 0;
    arrays[at].name = name, arrays[at].all = all, arrays[at].pages = pages;
    arrays[at].data = all + GUARD + (late ? pages - count * size : 0);
    arrays[at].count = count, arrays[at].size = size;
    return arrays[at].data;
}

void lab_protect(int at) { mprotect(arrays[at].all + GUARD, arrays[at].pages, PROT_READ); }

void lab_unmap(int at)
{
    munmap(arrays[at].all, arrays[at].pages + 2 * GUARD);
    arrays[at].all = 0;
}

static void tell(int number, siginfo_t *info, void *context)
{
    char *at = info->si_addr, text[200], *here = (char *)&info;
    const char *what = "touches";
#ifdef REG_ERR
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    what = registers[REG_ERR] & 2 ? "writes" : "reads";
    here = (char *)registers[REG_RSP];
#endif
    snprintf(text, sizeof text, "is ended by signal %d: %s", number, strsignal(number));
    if (number == SIGSEGV && at > here - STACK && at < base)
        snprintf(text, sizeof text, "uses more memory for its own variables than the stack has");
    for (int i = 0; number == SIGSEGV && i < MOST; i++) {
        long from = at - arrays[i].data, size = arrays[i].size;
        if (!arrays[i].all || at < arrays[i].all || at >= arrays[i].all + arrays[i].pages + 2 * GUARD)
            continue;
        long index = from < 0 ? -((size - 1 - from) / size) : from / size;
        int inside = index >= 0 && index < arrays[i].count;
        snprintf(text, sizeof text, "%s %s[%ld] of %ld%s", what, arrays[i].name, index,
                 arrays[i].count, inside ? ", which is only given" : "");
    }
    dprintf(2, "\nlab: %s\n", text);
    _exit(3);
}

void lab_watch(void)
{
    stack_t own = {.ss_sp = stack, .ss_size = STACK};
    struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    base = (char *)&own;
    sigaltstack(&own, 0);
    for (int i = 0; i < 5; i++) sigaction(numbers[i], &action, 0);
}
