// Commands and their options, declared without the templates of the library that parses them (CLI11, in options.cc
// alone): it costs a file 7 s of a build.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plait/base/base.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace plait::cli {

/// The options of one command. Names are "-p,--prompt"; names without dashes are positional. Help shows the value that
/// an option has when it is added.
class OptionList {
 public:
  explicit OptionList(CLI::App& app) : app_(app) {}

  /// Heads the options that follow, in help.
  void group(const std::string& name) { group_ = name; }
  /// "!--no-fuse" takes away what is true.
  void flag(const std::string& names, bool& value, const std::string& help);
  void add(const std::string& names, i64& value, const std::string& help);
  void add(const std::string& names, u64& value, const std::string& help);
  void add(const std::string& names, float& value, const std::string& help);
  void add(const std::string& names, double& value, const std::string& help);
  void add(const std::string& names, std::string& value, const std::string& help);
  void add(const std::string& names, std::optional<std::string>& value, const std::string& help);
  void required(const std::string& names, std::string& value, const std::string& help);
  void choice(const std::string& names, std::string& value, const std::vector<std::string>& of,
              const std::string& help);
  /// Numbers with commas between them.
  void list(const std::string& names, std::vector<i64>& value, const std::string& help);
  /// Every word up to the next option; at least one.
  void words(const std::string& names, std::vector<std::string>& value, const std::string& help);
  /// After the options in help.
  void footer(const std::string& text);
  /// Called when the command was chosen and its options are parsed.
  void chosen(std::function<void()> f);

 private:
  CLI::Option& grouped(CLI::Option& o) const;

  CLI::App& app_;
  std::string group_;
};

/// The program: its commands, of which one must be chosen.
class Parser {
 public:
  Parser(const std::string& name, const std::string& version, const std::string& about);
  ~Parser();
  OptionList command(const std::string& name, const std::string& help);
  /// An exit code where nothing is left to do: help and version were printed (0), or a message about wrong use (2).
  std::optional<int> parse(std::vector<std::string> args);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace plait::cli
