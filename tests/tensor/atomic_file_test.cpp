#include "reference/tensor/atomic_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "reference/tensor/bad_input.hpp"
#include "reference/tensor/safetensors.hpp"
#include "tests/tensor/message_of.hpp"
#include "tests/tensor/temporary_folder.hpp"

namespace attest {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// What a write of `text` says, without the path it begins with.
std::string said(const fs::path& path, std::string_view text = "text") {
  const std::string message = message_of([&] { write_file_atomically(path, text); });
  EXPECT_TRUE(message.starts_with(path.string() + ": ")) << message;
  return message.substr(std::min(message.size(), path.string().size() + 2));
}

const std::string expectation = ", expected a writable path with room for the result";

TEST(AtomicFile, WritesAndReplacesWithTheUsualPermissions) {
  const TemporaryFolder folder;
  const mode_t before = umask(022);
  write_file_atomically(folder / "a", "one");
  EXPECT_EQ(read(folder / "a"), "one");
  EXPECT_EQ(fs::status(folder / "a").permissions(), fs::perms(0644));
  fs::permissions(folder / "a", fs::perms(0640));
  write_file_atomically(folder / "a", "");
  EXPECT_EQ(read(folder / "a"), "");
  EXPECT_EQ(fs::status(folder / "a").permissions(), fs::perms(0640)) << "those of the replaced file are kept";
  EXPECT_EQ(folder.entries(), 1u);
  umask(before);
}

TEST(AtomicFile, WritesThroughASymbolicLink) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "real", "old");
  fs::create_symlink("real", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read(folder / "real"), "new");
}

TEST(AtomicFile, ShowsNothingBeforeTheCommitAndLeavesNothingWithoutIt) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "kept", "old");
  {
    AtomicFile fresh(folder / "fresh"), kept(folder / "kept");
    fresh.write("half a result");
    kept.write("half a result");
    EXPECT_FALSE(fs::exists(folder / "fresh"));
    EXPECT_EQ(read(folder / "kept"), "old");
    EXPECT_EQ(folder.entries(), 3u);
  }
  EXPECT_EQ(folder.entries(), 1u);
  EXPECT_EQ(read(folder / "kept"), "old");
}

TEST(AtomicFile, SaysWhyAPathCannotBeWritten) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "file", "old");
  EXPECT_EQ(said(folder / "none/a"),
            "output cannot be created in its folder: No such file or directory" + expectation);
  EXPECT_EQ(said(folder / "file/a"), "output cannot be reached: Not a directory" + expectation);
  EXPECT_EQ(said(folder.path()), "output cannot be written: Is a directory" + expectation);
  EXPECT_EQ(said(folder / "new/"), "output cannot be written: Is a directory" + expectation);
  const std::string long_name = message_of([&] { AtomicFile file(folder / std::string(300, 'n')); });
  EXPECT_TRUE(long_name.ends_with("nnn: output cannot be reached: File name too long" + expectation))
      << long_name;
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, EscapesAPathInItsMessage) {
  EXPECT_EQ(message_of([] { write_file_atomically("/nowhere/\x1b[2J\n\xff", "text"); }),
            "/nowhere/\\x1b[2J\\x0a\\xff: output cannot be created in its folder: No such file or directory" +
                expectation);
}

TEST(AtomicFile, WritesStreamsDirectlyAndNeverReplacesThem) {
  struct stat before, after;
  ASSERT_EQ(stat("/dev/null", &before), 0);
  write_file_atomically("/dev/null", "text");
  ASSERT_EQ(stat("/dev/null", &after), 0);
  EXPECT_TRUE(S_ISCHR(after.st_mode));
  EXPECT_EQ(before.st_ino, after.st_ino);

  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  write_file_atomically("/proc/self/fd/" + std::to_string(ends[1]), "through a pipe");
  char text[32] = {};
  EXPECT_EQ(::read(ends[0], text, sizeof text), 14);
  EXPECT_STREQ(text, "through a pipe");
  close(ends[0]);
  close(ends[1]);
}

TEST(AtomicFile, AppendsToAFileThatIsStandardOutput) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "log", "before ");
  const int log = open((folder / "log").c_str(), O_WRONLY | O_APPEND);
  write_file_atomically("/dev/fd/" + std::to_string(log), "after");
  close(log);
  EXPECT_EQ(read(folder / "log"), "before after");
}

TEST(AtomicFile, ReportsAFullDevice) {
  EXPECT_EQ(said("/dev/full"), "output cannot be written: No space left on device" + expectation);
}

// The rest changes limits, rights or mounts, so each runs in a child that exits with 0 if all held.
template <class Action>
void in_child(Action action) {
  EXPECT_EXIT(std::exit(action() ? 0 : 1), testing::ExitedWithCode(0), "");
}

bool refuses_and_leaves_nothing(const TemporaryFolder& folder, std::string_view reason) {
  SafetensorsWriter writer;
  writer.add("x", {1 << 16}, std::vector<double>(1 << 16));
  const std::string tensors = message_of([&] { writer.write(folder / "x.safetensors"); });
  const std::string text =
      message_of([&] { write_file_atomically(folder / "x.json", std::string(1 << 20, 'x')); });
  std::cerr << tensors << '\n' << text << '\n' << folder.entries() << " entries\n";
  return tensors.find(reason) != tensors.npos && text.find(reason) != text.npos && folder.entries() == 0;
}

void limit_file_size(rlim_t bytes) {
  const rlimit limit{bytes, bytes}, no_core{0, 0};
  setrlimit(RLIMIT_FSIZE, &limit);
  setrlimit(RLIMIT_CORE, &no_core);
}

TEST(AtomicFile, ReportsAFileSizeLimitInsteadOfDyingOfIt) {
  const TemporaryFolder folder;
  in_child([&] {
    limit_file_size(100'000);
    return refuses_and_leaves_nothing(folder, "output cannot be written: File too large") &&
           message_of([&] { write_file_atomically(folder / "small", "fits"); }) == "nothing thrown";
  });
}

void write_beyond_the_limit_by_hand(const TemporaryFolder& folder) {
  limit_file_size(100'000);
  (void)message_of([&] { write_file_atomically(folder / "x", std::string(1 << 20, 'x')); });
  std::ofstream(folder / "raw") << std::string(1 << 20, 'x');
  std::exit(0);
}

TEST(AtomicFile, LeavesTheSignalOfTheSizeLimitAsItWas) {
  const TemporaryFolder folder;
  EXPECT_EXIT(write_beyond_the_limit_by_hand(folder), testing::KilledBySignal(SIGXFSZ), "");
}

TEST(AtomicFile, ReportsAFullDisk) {
  const TemporaryFolder folder;
  const auto mount_small = [&] {
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") == 0;
  };
  if (fork() == 0) _exit(mount_small() ? 0 : 1);
  int status = 0;
  wait(&status);
  if (status != 0) GTEST_SKIP() << "mounting a small file system is not allowed here";
  in_child([&] {
    return mount_small() &&
           refuses_and_leaves_nothing(folder, "output cannot be written: No space left on device");
  });
}

TEST(AtomicFile, ReportsAFolderWithoutWritePermission) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms(0555));
  in_child([&] {
    const uid_t user = geteuid();
    if (user == 0 && seteuid(65534) != 0) return false;
    const bool held =
        refuses_and_leaves_nothing(folder, "output cannot be created in its folder: Permission denied");
    return seteuid(user) == 0 && held;  // a sanitizer that reports at the exit needs its rights back
  });
  fs::permissions(folder.path(), fs::perms(0755));
}

}  // namespace
}  // namespace attest
