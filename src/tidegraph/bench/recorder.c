/* Records what a process does to the files under a directory, for lost_writes.py, which compiles
 * it:
 *
 *   cc -shared -fPIC -O1 -o recorder.so recorder.c
 *   LD_PRELOAD=recorder.so TIDEGRAPH_RECORD=FILE TIDEGRAPH_RECORDED=/DIRECTORY program
 *
 * Every call that succeeded is one entry of FILE: kind, descriptor, position, and two texts with
 * their lengths. One lock is held from before a call until its entry is written, so that entries
 * have the order of the calls. Memory that is mapped and written to is not seen; nor is what the C
 * library writes behind fwrite.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { DESCRIPTORS = 65536, PATH = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static char root[PATH];
static char watched[DESCRIPTORS];

__attribute__((constructor)) static void begin(void) {
  const char *file = getenv("TIDEGRAPH_RECORD"), *directory = getenv("TIDEGRAPH_RECORDED");
  if (!file || !directory || strlen(directory) >= PATH) return;
  strcpy(root, directory);
  record =
      (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void* bytes, size_t size) {
  for (const char* at = bytes; size > 0;) {
    long done = syscall(SYS_write, record, at, size);
    if (done <= 0) abort(); /* a record with a gap proves nothing */
    at += done;
    size -= (size_t)done;
  }
}

static void enter(char kind, int fd, int64_t position, const void* a, size_t a_size, const void* b,
                  size_t b_size) {
  struct __attribute__((packed)) {
    char kind;
    int32_t fd;
    int64_t position;
    uint32_t sizes[2];
  } head = {kind, fd, position, {(uint32_t)a_size, (uint32_t)b_size}};
  put(&head, sizeof head);
  put(a, a_size);
  put(b, b_size);
}

static int is_watched(int fd) { return record >= 0 && fd >= 0 && fd < DESCRIPTORS && watched[fd]; }

/* The absolute form of a path; whether it is one to record. */
static int absolute(int directory, const char* path, char* out) {
  char base[PATH] = "", link[64];
  if (record < 0 || !path) return 0;
  if (path[0] != '/') {
    if (directory == AT_FDCWD) {
      if (!getcwd(base, sizeof base)) return 0;
    } else {
      snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
      ssize_t size = readlink(link, base, sizeof base - 1);
      if (size < 0) return 0;
      base[size] = 0;
    }
  }
  int size = snprintf(out, PATH, "%s%s%s", base, base[0] ? "/" : "", path);
  size_t prefix = strlen(root);
  return size < PATH && strncmp(out, root, prefix) == 0 && (out[prefix] == '/' || out[prefix] == 0);
}

static int opened(int directory, const char* path, int flags, mode_t mode) {
  char full[PATH];
  pthread_mutex_lock(&lock);
  int fd = (int)syscall(SYS_openat, directory, path, flags, mode);
  if (fd >= 0 && fd < DESCRIPTORS) {
    watched[fd] = (char)((flags & O_TMPFILE) != O_TMPFILE && absolute(directory, path, full));
    if (watched[fd]) enter('o', fd, flags & (O_TRUNC | O_CREAT), full, strlen(full), "", 0);
  }
  pthread_mutex_unlock(&lock);
  return fd;
}

#define MODE(flags)                                              \
  mode_t mode = 0;                                               \
  if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
    va_list rest;                                                \
    va_start(rest, flags);                                       \
    mode = va_arg(rest, mode_t);                                 \
    va_end(rest);                                                \
  }

int open(const char* path, int flags, ...) {
  MODE(flags) return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  MODE(flags) return opened(AT_FDCWD, path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
  MODE(flags) return opened(directory, path, flags, mode);
}
int openat64(int directory, const char* path, int flags, ...) {
  MODE(flags) return opened(directory, path, flags, mode);
}
int __open_2(const char* path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return opened(AT_FDCWD, path, flags, 0); }

int close(int fd) {
  pthread_mutex_lock(&lock);
  if (is_watched(fd)) {
    enter('c', fd, 0, "", 0, "", 0);
    watched[fd] = 0;
  }
  int done = (int)syscall(SYS_close, fd);
  pthread_mutex_unlock(&lock);
  return done;
}

static ssize_t written(int fd, const void* bytes, ssize_t done, int64_t position) {
  if (done > 0 && is_watched(fd)) {
    if (position < 0) position = lseek(fd, 0, SEEK_CUR) - done;
    enter('w', fd, position, bytes, (size_t)done, "", 0);
  }
  pthread_mutex_unlock(&lock);
  return done;
}

ssize_t write(int fd, const void* bytes, size_t size) {
  if (!is_watched(fd)) return syscall(SYS_write, fd, bytes, size);
  pthread_mutex_lock(&lock);
  return written(fd, bytes, syscall(SYS_write, fd, bytes, size), -1);
}

ssize_t writev(int fd, const struct iovec* parts, int count) {
  if (!is_watched(fd)) return syscall(SYS_writev, fd, parts, count);
  return count ? write(fd, parts[0].iov_base, parts[0].iov_len)
               : 0; /* callers go on with the rest */
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t position) {
  pthread_mutex_lock(&lock);
  return written(fd, bytes, syscall(SYS_pwrite64, fd, bytes, size, position), position);
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t position) {
  return pwrite(fd, bytes, size, position);
}

static int one(char kind, int fd, int64_t position, long done) {
  if (done == 0 && is_watched(fd)) enter(kind, fd, position, "", 0, "", 0);
  pthread_mutex_unlock(&lock);
  return (int)done;
}

int ftruncate(int fd, off_t size) {
  pthread_mutex_lock(&lock);
  return one('t', fd, size, syscall(SYS_ftruncate, fd, size));
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int fsync(int fd) {
  pthread_mutex_lock(&lock);
  return one('s', fd, 0, syscall(SYS_fsync, fd));
}
int fdatasync(int fd) {
  pthread_mutex_lock(&lock);
  return one('s', fd, 0, syscall(SYS_fdatasync, fd));
}

static int two(char kind, int of_a, const char* a, int of_b, const char* b, int flags, long done) {
  char full_a[PATH], full_b[PATH] = "";
  if (done == 0 && absolute(of_a, a, full_a) && (!b || absolute(of_b, b, full_b)))
    enter(kind, -1, flags, full_a, strlen(full_a), full_b, strlen(full_b));
  pthread_mutex_unlock(&lock);
  return (int)done;
}

int renameat2(int of_a, const char* a, int of_b, const char* b, unsigned flags) {
  pthread_mutex_lock(&lock);
  return two('r', of_a, a, of_b, b, (int)flags, syscall(SYS_renameat2, of_a, a, of_b, b, flags));
}
int renameat(int of_a, const char* a, int of_b, const char* b) {
  return renameat2(of_a, a, of_b, b, 0);
}
int rename(const char* a, const char* b) { return renameat2(AT_FDCWD, a, AT_FDCWD, b, 0); }

int linkat(int of_a, const char* a, int of_b, const char* b, int flags) {
  pthread_mutex_lock(&lock);
  return two('l', of_a, a, of_b, b, 0, syscall(SYS_linkat, of_a, a, of_b, b, flags));
}
int link(const char* a, const char* b) { return linkat(AT_FDCWD, a, AT_FDCWD, b, 0); }

int unlinkat(int directory, const char* path, int flags) {
  pthread_mutex_lock(&lock);
  return two('u', directory, path, 0, NULL, 0, syscall(SYS_unlinkat, directory, path, flags));
}
int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int directory, const char* path, mode_t mode) {
  pthread_mutex_lock(&lock);
  return two('d', directory, path, 0, NULL, 0, syscall(SYS_mkdirat, directory, path, mode));
}
int mkdir(const char* path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
