/* Counts the calls that change files, and makes the n-th one fail. Loaded into a test process with LD_PRELOAD.
 *
 * Calls of Python, of the Rust core and of other libraries go through the functions here, because all of them call the
 * C library by name. Writes to the standard streams, pipes and devices are not counted. What happens at the n-th call is
 * in a `struct fault` in memory that the test process shares with its children; until one is given, nothing happens.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum action { NOTHING, KILL, KILL_HALFWAY, FAIL, SHORT, SIGNAL };
enum group { WRITE = 1, CREATE = 2, RENAME = 4, REMOVE = 8, SYNC = 16 };

struct fault {
    _Atomic long calls;    /* counted so far */
    long at;               /* the call at which the fault happens; 0: never */
    long action;           /* what happens */
    long value;            /* an errno, or a signal */
    long repeated;         /* whether it also happens at all later calls */
    long groups;           /* the groups of calls that are counted */
    char last[4096];       /* name and path of the call at which it happened first */
};

static struct fault *fault;

void watch(struct fault *shared) { fault = shared; }

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int is_watched(int descriptor) {
    struct stat status;
    int saved = errno;
    int watched = descriptor > 2 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    errno = saved;
    return watched;
}

static int is_watched_path(const char *path) { return strncmp(path, "/dev/", 5) && strncmp(path, "/proc/", 6); }

static void note(const char *name, int descriptor, const char *path) {
    char link[64], target[3900] = "";
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length > 0) target[length] = 0;
        path = target;
    }
    snprintf(fault->last, sizeof fault->last, "%s %.3900s", name, path);
}

/* What happens at this call: the action, of which KILL and SIGNAL have been carried out. */
static enum action next_action(const char *name, enum group group, int descriptor, const char *path) {
    if (!fault || !(fault->groups & group)) return NOTHING;
    if (path ? !is_watched_path(path) : !is_watched(descriptor)) return NOTHING;
    long call = atomic_fetch_add(&fault->calls, 1) + 1;
    if (fault->at == 0 || call < fault->at || (call > fault->at && !fault->repeated)) return NOTHING;
    int saved = errno;
    if (call == fault->at) note(name, descriptor, path);
    if (fault->action == KILL) kill(getpid(), SIGKILL);
    if (fault->action == SIGNAL) kill(getpid(), (int)fault->value);
    errno = saved;
    return (enum action)fault->action;
}

static size_t half(size_t size) { return size > 1 ? size / 2 : size; }

/* A call that writes `size` bytes, as the expression `call`, which uses `size`. */
#define WRITING(name, descriptor, call) \
    enum action action = next_action(name, WRITE, descriptor, NULL); \
    if (action == FAIL) { errno = (int)fault->value; return -1; } \
    if (action == SHORT || action == KILL_HALFWAY) size = half(size); \
    ssize_t written = call; \
    if (action == KILL_HALFWAY) kill(getpid(), SIGKILL); \
    return written

#define CHANGING(name, group, descriptor, path, call) \
    enum action action = next_action(name, group, descriptor, path); \
    if (action == FAIL) { errno = (int)fault->value; return -1; } \
    int answer = call; \
    if (action == KILL_HALFWAY) kill(getpid(), SIGKILL); \
    return answer

ssize_t write(int fd, const void *data, size_t size) { REAL(write); WRITING("write", fd, real(fd, data, size)); }

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    WRITING("pwrite", fd, real(fd, data, size, at));
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(pwrite64);
    WRITING("pwrite", fd, real(fd, data, size, at));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    size_t size = (size_t)count;
    WRITING("writev", fd, real(fd, parts, (int)size));
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned int flags) {
    REAL(copy_file_range);
    WRITING("copy_file_range", out, real(in, from, out, to, size, flags));
}

ssize_t sendfile(int out, int in, off_t *from, size_t size) {
    REAL(sendfile);
    WRITING("sendfile", out, real(out, in, from, size));
}

ssize_t sendfile64(int out, int in, off64_t *from, size_t size) {
    REAL(sendfile64);
    WRITING("sendfile", out, real(out, in, from, size));
}

int ftruncate(int fd, off_t size) { REAL(ftruncate); CHANGING("ftruncate", WRITE, fd, NULL, real(fd, size)); }

int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); CHANGING("ftruncate", WRITE, fd, NULL, real(fd, size)); }

int fsync(int fd) {
    REAL(fsync);
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) { CHANGING("fsync", SYNC, fd, "folder", real(fd)); }
    CHANGING("fsync", SYNC, fd, NULL, real(fd));
}

int fdatasync(int fd) { REAL(fdatasync); CHANGING("fdatasync", SYNC, fd, NULL, real(fd)); }

static mode_t mode_of(int flags, va_list more) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; }

#define OPENING(call) \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = mode_of(flags, more); \
    va_end(more); \
    if (!(flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR)) || flags & O_PATH) return call; \
    CHANGING("open", CREATE, -1, path, call)

int open(const char *path, int flags, ...) { REAL(open); OPENING(real(path, flags, mode)); }

int open64(const char *path, int flags, ...) { REAL(open64); OPENING(real(path, flags, mode)); }

int openat(int folder, const char *path, int flags, ...) { REAL(openat); OPENING(real(folder, path, flags, mode)); }

int openat64(int folder, const char *path, int flags, ...) { REAL(openat64); OPENING(real(folder, path, flags, mode)); }

int mkdir(const char *path, mode_t mode) { REAL(mkdir); CHANGING("mkdir", CREATE, -1, path, real(path, mode)); }

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(mkdirat);
    CHANGING("mkdir", CREATE, -1, path, real(folder, path, mode));
}

int link(const char *path, const char *name) { REAL(link); CHANGING("link", CREATE, -1, name, real(path, name)); }

int linkat(int from, const char *path, int to, const char *name, int flags) {
    REAL(linkat);
    CHANGING("link", CREATE, -1, name, real(from, path, to, name, flags));
}

int symlink(const char *target, const char *path) {
    REAL(symlink);
    CHANGING("symlink", CREATE, -1, path, real(target, path));
}

int symlinkat(const char *target, int folder, const char *path) {
    REAL(symlinkat);
    CHANGING("symlink", CREATE, -1, path, real(target, folder, path));
}

int rename(const char *path, const char *name) { REAL(rename); CHANGING("rename", RENAME, -1, name, real(path, name)); }

int renameat(int from, const char *path, int to, const char *name) {
    REAL(renameat);
    CHANGING("rename", RENAME, -1, name, real(from, path, to, name));
}

int renameat2(int from, const char *path, int to, const char *name, unsigned int flags) {
    REAL(renameat2);
    CHANGING("renameat2", RENAME, -1, name, real(from, path, to, name, flags));
}

int unlink(const char *path) { REAL(unlink); CHANGING("unlink", REMOVE, -1, path, real(path)); }

int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    CHANGING("unlink", REMOVE, -1, path, real(folder, path, flags));
}

int rmdir(const char *path) { REAL(rmdir); CHANGING("rmdir", REMOVE, -1, path, real(path)); }
