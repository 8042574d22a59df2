/* Loaded before libc: numbers the calls on files below one folder, and lets one of them fail.

   faults_arm names the folder, the call and its fate; faults_track adds a descriptor that is open
   already. Calls are made one at a time, so that the order of the trace is that of the calls. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, CLOSE, WRITE, TRUNCATE, FSYNC, RENAME, LINK, SYMLINK, UNLINK, RMDIR, MKDIR, FLOCK,
       LAST_WRITING = FLOCK, READ, OPENDIR, STAT, SAY };
enum { NOTHING, FAIL, SHORT, KILL_BEFORE, KILL_AFTER };
enum { DESCRIPTORS = 4096, KILLED = 1 << 20 };

struct record {
    uint32_t number, op;
    int32_t fd, flags;
    int64_t offset, size, result;
    int32_t error;
    uint32_t path, other, data, process, unused;
};

/* Processes that are forked from the armed one have the lock and the count in common with it. */
struct common {
    pthread_mutex_t lock;
    uint32_t count;
};

static struct common own = {PTHREAD_MUTEX_INITIALIZER, 0}, *common = &own;
static int armed, trace = -1, action, errors, lasting, data_wanted;
static uint32_t kinds, wanted;
static char root[PATH_MAX];
static size_t root_length;
static char paths[DESCRIPTORS][PATH_MAX];

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

/* The absolute path in ``into``; whether it is the folder or below it. */
static int inside(int at, const char *path, char *into) {
    if (!armed || !path) return 0;
    if (path[0] == '/') {
        if (strlen(path) >= PATH_MAX) return 0;
        strcpy(into, path);
    } else {
        if (at != AT_FDCWD && (at < 0 || at >= DESCRIPTORS || !paths[at][0])) return 0;
        if (at != AT_FDCWD) strcpy(into, paths[at]);
        else if (syscall(SYS_getcwd, into, PATH_MAX) < 0) return 0;
        if (strlen(into) + strlen(path) + 2 >= PATH_MAX) return 0;
        if (strcmp(path, ".") != 0) strcat(strcat(into, "/"), path);
    }
    return !strncmp(into, root, root_length) && (!into[root_length] || into[root_length] == '/');
}

static int known(int fd) { return armed && fd >= 0 && fd < DESCRIPTORS && paths[fd][0]; }

static void take(void) {
    /* A process that was killed inside a call had it. */
    if (pthread_mutex_lock(&common->lock) == EOWNERDEAD) pthread_mutex_consistent(&common->lock);
}

static void put(const void *bytes, size_t length) {
    if (syscall(SYS_write, trace, bytes, length) != (long)length) _exit(98);
}

static void note(struct record r, const char *path, const char *other, const void *data) {
    if (trace < 0) return;
    r.process = getpid();
    r.path = path ? strlen(path) : 0;
    r.other = other ? strlen(other) : 0;
    r.data = data && (data_wanted || r.op == SAY) && r.result > 0 ? r.result : 0;
    put(&r, sizeof r);
    if (r.path) put(path, r.path);
    if (r.other) put(other, r.other);
    if (r.data) put(data, r.data);
}

/* What becomes of the next call of this kind. */
static int fate(int op, struct record *r) {
    if (!(kinds >> op & 1)) return r->number = 0, NOTHING;
    uint32_t count = r->number = ++common->count;
    if (!wanted || (lasting ? count < wanted : count != wanted)) return NOTHING;
    /* A full disk is still read, and files on it are still deleted and closed. */
    if (lasting && count > wanted && action == FAIL &&
        (op > LAST_WRITING || op == CLOSE || op == UNLINK || op == RMDIR || op == FLOCK))
        return NOTHING;
    return action;
}

/* Run ``call`` as its fate has it, and note it. */
#define CALL(kind, given_fd, given_flags, given_size, path, other, data, call, half, ...)          \
    do {                                                                                           \
        struct record r = {.op = kind, .fd = given_fd, .flags = given_flags, .size = given_size,   \
                           .offset = -1};                                                          \
        take();                                                                                    \
        int chosen = fate(r.op, &r);                                                               \
        if (chosen == KILL_BEFORE) {                                                               \
            r.result = -1, r.error = KILLED;                                                       \
            note(r, path, other, 0);                                                               \
            raise(SIGKILL);                                                                        \
        }                                                                                          \
        if (chosen == FAIL) {                                                                      \
            if (r.op == CLOSE) {                                                                   \
                __typeof__(call) closed = (call);                                                  \
                (void)closed;                                                                      \
            }                                                                                      \
            result = -1, errno = errors;                                                           \
        } else if (chosen == SHORT) {                                                              \
            result = (half);                                                                       \
        } else {                                                                                   \
            result = (call);                                                                       \
        }                                                                                          \
        int kept = errno;                                                                          \
        r.result = (int64_t)result;                                                                \
        r.error = r.result == -1 ? kept : 0;                                                       \
        __VA_ARGS__;                                                                               \
        note(r, path, other, data);                                                                \
        if (chosen == KILL_AFTER) raise(SIGKILL);                                                  \
        pthread_mutex_unlock(&common->lock);                                                       \
        errno = kept;                                                                              \
    } while (0)

void faults_arm(const char *folder, int trace_fd, unsigned kind_bits, unsigned call, int what,
                int error, int from_then_on, int with_data) {
    strcpy(root, folder);
    root_length = strlen(root);
    trace = trace_fd, kinds = kind_bits, wanted = call, action = what, errors = error;
    lasting = from_then_on, data_wanted = with_data;
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    common = mmap(0, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED || pthread_mutex_init(&common->lock, &shared)) _exit(97);
    armed = 1;
}

void faults_track(int fd, const char *path) { strcpy(paths[fd], path); }

static int opened(int at, const char *path, int flags, mode_t mode) {
    int result = -1;
    char full[PATH_MAX];
    __typeof__(&openat64) call = REAL(openat64);
    if (!inside(at, path, full)) return call(at, path, flags, mode);
    /* To open for reading is one of the calls that only read. */
    int kind = (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) ? OPEN : READ;
    CALL(kind, result, flags, mode, full, 0, 0, call(at, path, flags, mode),
         call(at, path, flags, mode), {
             r.fd = result, r.op = OPEN;
             if (result >= 0 && result < DESCRIPTORS) strcpy(paths[result], full);
         });
    return result;
}

#define MODE                                                                                       \
    va_list more;                                                                                  \
    va_start(more, flags);                                                                         \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                      \
    va_end(more)

int open(const char *path, int flags, ...) { MODE; return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE; return opened(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE; return opened(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) {
    MODE;
    return opened(at, path, flags, mode);
}

int close(int fd) {
    int result;
    __typeof__(&close) call = REAL(close);
    if (!known(fd)) return call(fd);
    char full[PATH_MAX];
    strcpy(full, paths[fd]);
    CALL(CLOSE, fd, 0, 0, full, 0, 0, call(fd), call(fd), paths[fd][0] = 0);
    return result;
}

/* What a descriptor is made a copy of is what it stands for. */
static int copied(int from, int to) {
    if (to < 0 || to >= DESCRIPTORS) return to;
    take();
    if (known(from)) memmove(paths[to], paths[from], PATH_MAX);
    else paths[to][0] = 0;
    pthread_mutex_unlock(&common->lock);
    return to;
}

int dup2(int from, int to) { return copied(from, REAL(dup2)(from, to)); }
int dup3(int from, int to, int flags) { return copied(from, REAL(dup3)(from, to, flags)); }

#define HALF(size) ((size) > 1 ? (size) / 2 : (size))
#define POSITION r.offset = result > 0 ? lseek(fd, 0, SEEK_CUR) - result : -1

ssize_t write(int fd, const void *data, size_t size) {
    ssize_t result;
    __typeof__(&write) call = REAL(write);
    if (armed && (fd == 1 || fd == 2) && !known(fd)) {
        result = call(fd, data, size);
        struct record r = {.op = SAY, .fd = fd, .result = result};
        take();
        note(r, 0, 0, data);
        pthread_mutex_unlock(&common->lock);
        return result;
    }
    if (!known(fd)) return call(fd, data, size);
    CALL(WRITE, fd, 0, size, paths[fd], 0, data, call(fd, data, size),
         call(fd, data, HALF(size)), POSITION);
    return result;
}

static ssize_t written_at(int fd, const void *data, size_t size, off64_t offset) {
    ssize_t result;
    __typeof__(&pwrite64) call = REAL(pwrite64);
    if (!known(fd)) return call(fd, data, size, offset);
    CALL(WRITE, fd, 0, size, paths[fd], 0, data, call(fd, data, size, offset),
         call(fd, data, HALF(size), offset), r.offset = offset);
    return result;
}

ssize_t pwrite(int fd, const void *d, size_t n, off_t at) { return written_at(fd, d, n, at); }
ssize_t pwrite64(int fd, const void *d, size_t n, off64_t at) { return written_at(fd, d, n, at); }

/* Several pieces become a short write after the first. */
ssize_t writev(int fd, const struct iovec *pieces, int pieces_count) {
    __typeof__(&writev) call = REAL(writev);
    if (!known(fd) || pieces_count < 1) return call(fd, pieces, pieces_count);
    return write(fd, pieces->iov_base, pieces->iov_len);
}

static ssize_t been_read(int fd, void *data, size_t size, off64_t offset, int at) {
    ssize_t result;
    __typeof__(&read) from_here = REAL(read);
    __typeof__(&pread64) from = REAL(pread64);
    if (!known(fd)) return at ? from(fd, data, size, offset) : from_here(fd, data, size);
#define TAKE(n) (at ? from(fd, data, n, offset) : from_here(fd, data, n))
    CALL(READ, fd, 0, size, paths[fd], 0, 0, TAKE(size), TAKE(HALF(size)), (void)0);
    return result;
}

ssize_t read(int fd, void *data, size_t size) { return been_read(fd, data, size, 0, 0); }
ssize_t pread(int fd, void *data, size_t n, off_t at) { return been_read(fd, data, n, at, 1); }
ssize_t pread64(int fd, void *data, size_t n, off64_t at) { return been_read(fd, data, n, at, 1); }

#define ON_DESCRIPTOR(kind, name, given, ...)                                                      \
    __typeof__(&name) call = REAL(name);                                                           \
    int result;                                                                                    \
    if (!known(fd)) return call(fd, ##__VA_ARGS__);                                                \
    CALL(kind, fd, 0, given, paths[fd], 0, 0, call(fd, ##__VA_ARGS__), call(fd, ##__VA_ARGS__),    \
         (void)0);                                                                                 \
    return result

int fsync(int fd) { ON_DESCRIPTOR(FSYNC, fsync, 0); }
int fdatasync(int fd) { ON_DESCRIPTOR(FSYNC, fdatasync, 0); }
int ftruncate(int fd, off_t size) { ON_DESCRIPTOR(TRUNCATE, ftruncate, size, size); }
int ftruncate64(int fd, off64_t size) { ON_DESCRIPTOR(TRUNCATE, ftruncate64, size, size); }
int flock(int fd, int how) { ON_DESCRIPTOR(FLOCK, flock, how, how); }
int posix_fallocate64(int fd, off64_t at, off64_t size) {
    ON_DESCRIPTOR(TRUNCATE, posix_fallocate64, at + size, at, size);
}

#define ON_PATH(kind, at, name, flags, type, ...)                                                  \
    __typeof__(&name) call = REAL(name);                                                           \
    type result;                                                                                   \
    char full[PATH_MAX];                                                                           \
    if (!inside(at, path, full)) return call(__VA_ARGS__);                                         \
    CALL(kind, -1, flags, 0, full, 0, 0, call(__VA_ARGS__), call(__VA_ARGS__), (void)0);           \
    return result

int unlink(const char *path) { ON_PATH(UNLINK, AT_FDCWD, unlink, 0, int, path); }
int unlinkat(int at, const char *path, int flags) {
    int kind = flags & AT_REMOVEDIR ? RMDIR : UNLINK;
    ON_PATH(kind, at, unlinkat, flags, int, at, path, flags);
}
int rmdir(const char *path) { ON_PATH(RMDIR, AT_FDCWD, rmdir, 0, int, path); }
int mkdir(const char *path, mode_t mode) { ON_PATH(MKDIR, AT_FDCWD, mkdir, 0, int, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) {
    ON_PATH(MKDIR, at, mkdirat, 0, int, at, path, mode);
}
int stat64(const char *path, struct stat64 *into) {
    ON_PATH(STAT, AT_FDCWD, stat64, 0, int, path, into);
}
int lstat64(const char *path, struct stat64 *into) {
    ON_PATH(STAT, AT_FDCWD, lstat64, 0, int, path, into);
}
int fstatat64(int at, const char *path, struct stat64 *into, int flags) {
    ON_PATH(STAT, at, fstatat64, flags, int, at, path, into, flags);
}
int fstat64(int fd, struct stat64 *into) { ON_DESCRIPTOR(STAT, fstat64, 0, into); }

DIR *opendir(const char *path) {
    __typeof__(&opendir) call = REAL(opendir);
    intptr_t result;
    char full[PATH_MAX];
    if (!inside(AT_FDCWD, path, full)) return call(path);
#define LISTED ((intptr_t)call(path) ?: -1)
    CALL(OPENDIR, -1, 0, 0, full, 0, 0, LISTED, LISTED, (void)0);
    return result == -1 ? 0 : (DIR *)result;
}

#define ON_TWO(kind, from_at, to_at, name, ...)                                                    \
    __typeof__(&name) call = REAL(name);                                                           \
    int result;                                                                                    \
    char one[PATH_MAX], two[PATH_MAX];                                                             \
    int within = inside(from_at, from, one);                                                       \
    if (!inside(to_at, to, two) && !within) return call(__VA_ARGS__);                              \
    CALL(kind, -1, 0, 0, one, two, 0, call(__VA_ARGS__), call(__VA_ARGS__), (void)0);              \
    return result

int rename(const char *from, const char *to) {
    ON_TWO(RENAME, AT_FDCWD, AT_FDCWD, rename, from, to);
}
int renameat(int from_at, const char *from, int to_at, const char *to) {
    ON_TWO(RENAME, from_at, to_at, renameat, from_at, from, to_at, to);
}
int link(const char *from, const char *to) { ON_TWO(LINK, AT_FDCWD, AT_FDCWD, link, from, to); }
int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    ON_TWO(LINK, from_at, to_at, linkat, from_at, from, to_at, to, flags);
}

/* The first of the two paths is only a text. */
static int symlinked(const char *text, int at, const char *to) {
    __typeof__(&symlinkat) call = REAL(symlinkat);
    int result;
    char full[PATH_MAX];
    if (!inside(at, to, full)) return call(text, at, to);
    CALL(SYMLINK, -1, 0, 0, full, text, 0, call(text, at, to), call(text, at, to), (void)0);
    return result;
}

int symlink(const char *text, const char *to) { return symlinked(text, AT_FDCWD, to); }
int symlinkat(const char *text, int at, const char *to) { return symlinked(text, at, to); }
