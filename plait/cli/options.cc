#include "plait/cli/options.h"

#include <CLI/CLI.hpp>

namespace plait::cli {

CLI::Option& OptionList::grouped(CLI::Option& o) const {
  if (!group_.empty()) o.group(group_);
  return o;
}

void OptionList::flag(const std::string& names, bool& value, const std::string& help) {
  grouped(*app_.add_flag(names, value, help));
}

void OptionList::add(const std::string& names, i64& value, const std::string& help) {
  grouped(*app_.add_option(names, value, help)).capture_default_str();
}

void OptionList::add(const std::string& names, u64& value, const std::string& help) {
  grouped(*app_.add_option(names, value, help)).capture_default_str();
}

void OptionList::add(const std::string& names, float& value, const std::string& help) {
  grouped(*app_.add_option(names, value, help)).capture_default_str();
}

void OptionList::add(const std::string& names, double& value, const std::string& help) {
  grouped(*app_.add_option(names, value, help)).capture_default_str();
}

void OptionList::add(const std::string& names, std::string& value, const std::string& help) {
  grouped(*app_.add_option(names, value, help)).capture_default_str();
}

void OptionList::add(const std::string& names, std::optional<std::string>& value, const std::string& help) {
  grouped(*app_.add_option(names, value, help));
}

void OptionList::required(const std::string& names, std::string& value, const std::string& help) {
  grouped(*app_.add_option(names, value, help)).required();
}

void OptionList::choice(const std::string& names, std::string& value, const std::vector<std::string>& of,
                        const std::string& help) {
  grouped(*app_.add_option(names, value, help)).capture_default_str()->check(CLI::IsMember(of));
}

void OptionList::list(const std::string& names, std::vector<i64>& value, const std::string& help) {
  grouped(*app_.add_option(names, value, help)).delimiter(',');
}

void OptionList::words(const std::string& names, std::vector<std::string>& value, const std::string& help) {
  grouped(*app_.add_option(names, value, help)).expected(1, -1);
}

void OptionList::footer(const std::string& text) { app_.footer(text); }

void OptionList::chosen(std::function<void()> f) { app_.callback(std::move(f)); }

Parser::Parser(const std::string& name, const std::string& version, const std::string& about)
    : app_(std::make_unique<CLI::App>(about, name)) {
  app_->set_version_flag("--version", name + " " + version);
  app_->require_subcommand(1);
  app_->get_formatter()->column_width(34);
}

Parser::~Parser() = default;

OptionList Parser::command(const std::string& name, const std::string& help) {
  return OptionList(*app_->add_subcommand(name, help));
}

std::optional<int> Parser::parse(std::vector<std::string> args) {
  std::reverse(args.begin(), args.end());  // as CLI11 wants them
  try {
    app_->parse(std::move(args));
  } catch (const CLI::ParseError& e) { return app_->exit(e) == 0 ? 0 : static_cast<int>(Code::usage); }
  return {};
}

}  // namespace plait::cli
