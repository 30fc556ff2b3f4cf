// Each way of libc to look at a path, on the tree that stands for /sys/class/infiniband. Prints the
// ways that do not see it.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wordexp.h>

#define CLASS "/sys/class/infiniband"
#define DEVICE CLASS "/mlx5_0"
#define GIDS DEVICE "/ports/1/gids"

static int failed;

static void check(const char* way, int works) {
  if (!works) {
    printf("%s does not see the tree\n", way);
    failed = 1;
  }
}

// What a walk has told.
static int told, told_wrong;

static int tell(const char* path, const struct stat* stat, int kind) {
  told += strncmp(path, GIDS, strlen(GIDS)) == 0;
  told_wrong += kind == FTW_F && !S_ISREG(stat->st_mode);
  return 0;
}

static int tell_place(const char* path, const struct stat* stat, int kind, struct FTW* place) {
  const char* name = strrchr(path, '/') + 1;
  told_wrong += path + place->base != name;
  return tell(path, stat, kind);
}

// A walk inside of a walk.
static int tell_twice(const char* path, const struct stat* stat, int kind, struct FTW* place) {
  if (kind == FTW_D) check("nftw within nftw", nftw(GIDS, tell_place, 4, 0) == 0);
  return tell_place(path, stat, kind, place);
}

static void walk(void) {
  check("ftw", ftw(GIDS, tell, 4) == 0 && told == 5 && !told_wrong);
  told = 0;
  check("nftw", nftw(GIDS "/", tell_place, 4, FTW_PHYS) == 0 && told == 5 && !told_wrong);
  told = 0;
  check("nftw within nftw", nftw(GIDS, tell_twice, 4, FTW_PHYS) == 0 && told == 10 && !told_wrong);
  told = 0;
  check("nftw elsewhere", nftw("/sys/class/net", tell_place, 4, FTW_PHYS) == 0 && told == 0);
  char* const paths[] = {"/dev/null", GIDS, NULL};
  FTS* walk = fts_open(paths, FTS_PHYSICAL, NULL);
  int files = 0;
  for (FTSENT* entry; walk && (entry = fts_read(walk));) files += entry->fts_info == FTS_F;
  check("fts_open", files == 4);
}

static void expand(void) {
  glob_t found;
  check("glob", glob(CLASS "/*/ports/*/gids/[0-3]", 0, NULL, &found) == 0 && found.gl_pathc == 4 &&
                    !strcmp(found.gl_pathv[3], GIDS "/3"));
  check("glob, appended", glob(CLASS "/*", GLOB_APPEND, NULL, &found) == 0 && found.gl_pathc == 5);
  globfree(&found);
  check("glob of nothing", glob(CLASS "/none*", 0, NULL, &found) == GLOB_NOMATCH);
  wordexp_t words;
  const char* text = "a " GIDS "/* b " CLASS "/none*";
  const char* expected[] = {"a", GIDS "/0", GIDS "/1", GIDS "/2", GIDS "/3", "b", CLASS "/none*"};
  check("wordexp",
        wordexp(text, &words, 0) == 0 && words.we_wordc == 7 && words.we_wordv[7] == NULL);
  for (int i = 0; i < 7 && !failed; i++) check("wordexp", !strcmp(words.we_wordv[i], expected[i]));
  words.we_offs = 2;
  wordfree(&words);
  words.we_offs = 2;
  check("wordexp with a gap", wordexp(CLASS "/*", &words, WRDE_DOOFFS) == 0 &&
                                  words.we_wordc == 1 && words.we_wordv[1] == NULL &&
                                  !strcmp(words.we_wordv[2], DEVICE));
  check("wordexp, appended",
        wordexp(GIDS "/*", &words, WRDE_DOOFFS | WRDE_APPEND) == 0 && words.we_wordc == 5);
  wordfree(&words);
  check("wordexp of quotes",
        wordexp("'" CLASS "/*'", &words, 0) == 0 && !strcmp(words.we_wordv[0], CLASS "/*"));
  wordfree(&words);
}

static void look(void) {
  char text[PATH_MAX], *whole;
  struct stat stat_;
  struct statx statx_;
  struct dirent** list;
  check("opendir", opendir(DEVICE "/ports") != NULL);
  check("scandir", scandir(CLASS, &list, NULL, alphasort) == 3);
  check("fopen", fopen(DEVICE "/node_type", "r") != NULL);
  check("freopen", freopen(DEVICE "/node_type", "r", stdin) != NULL);
  check("realpath", realpath(DEVICE, text) && strstr(text, "/devices/pci0000:00/"));
  check("canonicalize_file_name", (whole = canonicalize_file_name(DEVICE)) && !strcmp(whole, text));
  check("readlink", readlink(DEVICE, text, sizeof text) > 0);
  check("stat", stat(DEVICE, &stat_) == 0 && S_ISDIR(stat_.st_mode));
  check("lstat", lstat(DEVICE, &stat_) == 0 && S_ISLNK(stat_.st_mode));
  check("statx", statx(AT_FDCWD, DEVICE, 0, STATX_ALL, &statx_) == 0);
  check("access", access(DEVICE, R_OK) == 0);
  check("faccessat", faccessat(AT_FDCWD, DEVICE, R_OK, 0) == 0);
  check("faccessat for the effective user", faccessat(AT_FDCWD, DEVICE, R_OK, AT_EACCESS) == 0);
  check("euidaccess", euidaccess(DEVICE, R_OK) == 0 && eaccess(DEVICE, R_OK) == 0);
  check("a path with dots", access("/sys//class/net/../infiniband/./mlx5_0", R_OK) == 0);
  check("another class", access("/sys/class/net/lo", R_OK) == 0);
}

// From a directory on: a real one, and one of the tree.
static void look_from(int directory, const char* prefix) {
  char path[PATH_MAX], text[8];
  struct stat stat_;
  struct statx statx_;
  struct dirent** list;
  snprintf(path, sizeof path, "%smlx5_0/ports", prefix);
  check("scandirat", scandirat(directory, path, &list, NULL, alphasort) == 3);
  snprintf(path, sizeof path, "%smlx5_0", prefix);
  check("fstatat", fstatat(directory, path, &stat_, 0) == 0);
  check("statx from a directory", statx(directory, path, 0, STATX_ALL, &statx_) == 0);
  check("readlinkat", readlinkat(directory, path, text, sizeof text) > 0);
  check("faccessat from a directory", faccessat(directory, path, R_OK, 0) == 0);
  snprintf(path, sizeof path, "%smlx5_0/node_type", prefix);
  const int file = openat(directory, path, O_RDONLY);
  check("openat", file >= 0 && read(file, text, 5) == 5 && !memcmp(text, "1: CA", 5));
}

int main(void) {
  look();
  walk();
  expand();
  look_from(open("/sys", O_RDONLY | O_DIRECTORY), "class/infiniband/");
  look_from(open("/sys/class/net", O_RDONLY | O_DIRECTORY), "../infiniband/");
  look_from(open(CLASS, O_RDONLY | O_DIRECTORY), "");
  check("chdir", chdir("/sys/class") == 0);
  look_from(AT_FDCWD, "infiniband/");
  check("chdir to a class", chdir("infiniband") == 0);
  look_from(AT_FDCWD, "");
  check("opendir in a class", opendir("mlx5_0/ports") != NULL);
  return failed;
}
