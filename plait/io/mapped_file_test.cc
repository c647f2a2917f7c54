#include "plait/io/mapped_file.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plait/io/output_file.h"
#include "plait/io/test_support.h"

namespace plait::io {
namespace {

TEST(MappedFile, holds_the_bytes_of_the_file) {
  TempFolder t;
  write_file(t / "a", "hello");
  MappedFile f(t / "a");
  EXPECT_EQ(f.text(), "hello");
  EXPECT_EQ(f.size(), 5);
  EXPECT_EQ(f.path(), t / "a");
  MappedFile g = std::move(f);
  EXPECT_EQ(g.text(), "hello");
  write_file(t / "empty", "");
  EXPECT_EQ(MappedFile(t / "empty").size(), 0);
}

TEST(MappedFile, hints_of_any_range_change_nothing) {
  TempFolder t;
  std::string bytes(100'000, 'x');
  write_file(t / "a", bytes);
  MappedFile f(t / "a");
  f.advise_sequential();
  for (i64 offset : {i64{-1}, i64{0}, i64{4095}, i64{4096}, i64{99'999}, i64{200'000}, INT64_MAX})
    for (i64 n : {i64{-5}, i64{0}, i64{1}, i64{8192}, INT64_MAX}) {
      f.will_need(offset, n);
      f.dont_need(offset, n);
    }
  EXPECT_EQ(f.text(), bytes);
}

TEST(MappedFile, names_what_cannot_be_mapped) {
  TempFolder t;
  expect_bad_file([&] { MappedFile(t / "none"); }, "none", "No such file");
  expect_bad_file([&] { MappedFile(t.path()); }, "a folder", "regular file");
  expect_bad_file([&] { MappedFile("/dev/zero"); }, "/dev/zero", "regular file");
  ASSERT_EQ(::mkfifo((t / "fifo").c_str(), 0600), 0);
  expect_bad_file([&] { MappedFile(t / "fifo"); }, "regular file");
  fs::create_symlink("loop", t / "loop");
  expect_bad_file([&] { MappedFile(t / "loop"); }, "symbolic links");
}

// A page that is gone would end the process with SIGBUS.
TEST(MappedFile, a_file_cut_while_it_is_mapped_reads_as_zeros_and_is_told) {
  TempFolder t;
  const auto path = t / "a";
  write_file(path, std::string(50'000, 'x'));
  write_file(t / "b", std::string(50'000, 'y'));
  MappedFile f(path), other(t / "b");
  f.check_whole();
  fs::resize_file(path, 5000);
  EXPECT_EQ(f.text()[4999], 'x');
  EXPECT_EQ(f.text()[30'000], 0);
  EXPECT_EQ(f.text()[49'999], 0);
  expect_bad_file([&] { f.check_whole(); }, path, "got 5000 bytes while it was read, want the 50000");
  fs::resize_file(path, 60'000);  // grown again: what was lost is lost
  expect_bad_file([&] { f.check_whole(); }, path);
  other.check_whole();
  EXPECT_EQ(other.text()[49'999], 'y');
  fs::resize_file(t / "b", 49'999);  // within a page: no signal
  expect_bad_file([&] { other.check_whole(); }, "got 49999 bytes");
}

TEST(MappedFileDeathTest, another_bus_error_still_ends_the_process) {
  MappedFile f("/proc/self/exe");
  EXPECT_EXIT(raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

TEST(OutputFile, appears_only_whole) {
  TempFolder t;
  write_file(t / "a", "before");
  {
    OutputFile f(t / "a");
    f.write("half", 4);
  }
  EXPECT_EQ(read_file(t / "a"), "before");
  std::string big(3'000'000, 'b');
  OutputFile f(t / "a");
  f.write("head", 4);
  f.write(big.data(), static_cast<i64>(big.size()));
  EXPECT_EQ(f.offset(), 3'000'004);
  EXPECT_EQ(read_file(t / "a"), "before");
  f.commit();
  EXPECT_EQ(read_file(t / "a"), "head" + big);
  EXPECT_EQ(std::distance(fs::directory_iterator(t.path()), {}), 1);
  expect_bad_file([&] { OutputFile(t / "no/such/file"); }, "no/such/file", "No such file");
}

}  // namespace
}  // namespace plait::io
