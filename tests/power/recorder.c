/* Records what a process writes below a folder, in order, for a test that rebuilds the disk as it was at any moment.

   Preloaded (LD_PRELOAD). POWER_ROOT is the folder, POWER_LOG the file to which records are appended. A record is a
   header and two byte strings: `struct record` below, and `read_records` in disk.py. A lock makes the order of records
   that of the calls within a process. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct record {
    uint32_t kind, path_bytes, data_bytes, unused;
    uint64_t inode, offset;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static size_t root_bytes;
static int log_fd = -1;

#define REAL(name) ((__typeof__(&name)) real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

__attribute__((constructor)) static void begin(void) {
    root = getenv("POWER_ROOT");
    const char *file = getenv("POWER_LOG");
    if (!root || !file) return;
    root_bytes = strlen(root);
    int opened = REAL(open)(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    log_fd = fcntl(opened, F_DUPFD_CLOEXEC, 900); /* where no program closes it by counting from 3 */
    close(opened);
}

static int is_below(const char *path) {
    return log_fd >= 0 && !strncmp(path, root, root_bytes) && (path[root_bytes] == '/' || !path[root_bytes]);
}

static void note(char kind, uint64_t inode, uint64_t offset, const char *path, const void *data, size_t data_bytes) {
    int before = errno;
    struct record head = {kind, strlen(path), data_bytes, 0, inode, offset};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)path, head.path_bytes}, {(void *)data, data_bytes}};
    if (REAL(writev)(log_fd, parts, 3) != (ssize_t)(sizeof head + head.path_bytes + data_bytes)) abort();
    errno = before;
}

static int place_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0 && is_below(path);
}

static int whole_path(int folder, const char *path, char *whole) {
    char base[PATH_MAX];
    if (path[0] == '/') {
        snprintf(whole, PATH_MAX, "%s", path);
    } else if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
        if (snprintf(whole, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    } else {
        place_of(folder, base);
        if (snprintf(whole, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    }
    return is_below(whole);
}

static int opened(int folder, const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    struct stat status;
    if (!(flags & (O_CREAT | O_TRUNC)) || !whole_path(folder, path, whole))
        return REAL(openat)(folder, path, flags, mode);
    pthread_mutex_lock(&lock);
    int is_new = fstatat(folder, path, &status, 0) != 0;
    int fd = REAL(openat)(folder, path, flags, mode);
    if (fd >= 0 && !fstat(fd, &status)) {
        if (is_new) note('C', status.st_ino, 0, whole, "", 0);
        else if (flags & O_TRUNC) note('T', status.st_ino, 0, whole, "", 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags) return opened(folder, path, flags, mode); }

/* Do a call on a file descriptor under the lock, and note it if it succeeded on a file below the folder. */
#define ON_FILE(fd, result, call, ...) \
    char path[PATH_MAX]; \
    if (!place_of(fd, path)) return call; \
    pthread_mutex_lock(&lock); \
    result = call; \
    if (result >= 0) { \
        struct stat status; \
        if (!fstat(fd, &status)) { __VA_ARGS__ } \
    } \
    pthread_mutex_unlock(&lock); \
    return result;

ssize_t write(int fd, const void *data, size_t size) {
    ssize_t done;
    ON_FILE(fd, done, REAL(write)(fd, data, size),
            note('W', status.st_ino, lseek(fd, 0, SEEK_CUR) - done, path, data, done);)
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    ssize_t done;
    ON_FILE(fd, done, REAL(pwrite)(fd, data, size, offset), note('W', status.st_ino, offset, path, data, done);)
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    ssize_t done;
    ON_FILE(fd, done, REAL(pwrite64)(fd, data, size, offset), note('W', status.st_ino, offset, path, data, done);)
}

ssize_t sendfile(int fd, int from, off_t *offset, size_t size) {
    off_t start = offset ? *offset : lseek(from, 0, SEEK_CUR);
    ssize_t done;
    ON_FILE(fd, done, REAL(sendfile)(fd, from, offset, size), {
        char *copy = malloc(done + 1);
        if (!copy || pread(from, copy, done, start) != done) abort();
        note('W', status.st_ino, lseek(fd, 0, SEEK_CUR) - done, path, copy, done);
        free(copy);
    })
}

ssize_t sendfile64(int fd, int from, off64_t *offset, size_t size) { return sendfile(fd, from, offset, size); }

int ftruncate(int fd, off_t size) {
    int done;
    ON_FILE(fd, done, REAL(ftruncate)(fd, size), note('T', status.st_ino, size, path, "", 0);)
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int fsync(int fd) {
    int done;
    ON_FILE(fd, done, REAL(fsync)(fd), note(S_ISDIR(status.st_mode) ? 'D' : 'S', status.st_ino, 0, path, "", 0);)
}

int fdatasync(int fd) {
    int done;
    ON_FILE(fd, done, REAL(fdatasync)(fd), note(S_ISDIR(status.st_mode) ? 'D' : 'S', status.st_ino, 0, path, "", 0);)
}

void sync(void) {
    pthread_mutex_lock(&lock);
    REAL(sync)();
    if (log_fd >= 0) note('Y', 0, 0, "", "", 0);
    pthread_mutex_unlock(&lock);
}

/* Do a call on names under the lock, and note it if it succeeded. */
#define ON_NAME(folder, name, call, kind) \
    char whole[PATH_MAX]; \
    if (!whole_path(folder, name, whole)) return call; \
    pthread_mutex_lock(&lock); \
    int done = call; \
    if (!done) note(kind, 0, 0, whole, "", 0); \
    pthread_mutex_unlock(&lock); \
    return done;

int mkdir(const char *path, mode_t mode) { ON_NAME(AT_FDCWD, path, REAL(mkdir)(path, mode), 'M') }
int mkdirat(int folder, const char *path, mode_t mode) { ON_NAME(folder, path, REAL(mkdirat)(folder, path, mode), 'M') }
int rmdir(const char *path) { ON_NAME(AT_FDCWD, path, REAL(rmdir)(path), 'U') }
int unlink(const char *path) { ON_NAME(AT_FDCWD, path, REAL(unlink)(path), 'U') }
int unlinkat(int folder, const char *path, int flags) { ON_NAME(folder, path, REAL(unlinkat)(folder, path, flags), 'U') }

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    char whole[PATH_MAX], target[PATH_MAX];
    int is_here = whole_path(from, old, whole), is_there = whole_path(to, new, target);
    if (!is_here && !is_there) return REAL(renameat2)(from, old, to, new, flags);
    pthread_mutex_lock(&lock);
    int done = REAL(renameat2)(from, old, to, new, flags);
    if (!done) note('R', 0, 0, whole, target, strlen(target));
    pthread_mutex_unlock(&lock);
    return done;
}

int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return renameat2(from, old, to, new, 0); }
