#include <algorithm>

#include "plait/text/template_parser.h"
#include "plait/text/utf8.h"

namespace plait::text::tmpl {

namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string with_plain_newlines(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size(); i++) {
    if (s[i] == '\r') {
      out += '\n';
      if (i + 1 < s.size() && s[i + 1] == '\n') i++;
    } else {
      out += s[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      if (tag == std::string::npos) {
        add_data(source_.substr(at_));
        break;
      }
      const char kind = source_[tag + 1];
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      std::string data = source_.substr(at_, tag - at_);
      if (sign == '-') {
        while (!data.empty() && is_space(data.back())) data.pop_back();
      } else if (kind != '{' && sign != '+') {
        strip_line_start(data);
      }
      const size_t body = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
      const int line = line_ + static_cast<int>(std::count(source_.begin() + static_cast<i64>(at_),
                                                           source_.begin() + static_cast<i64>(tag), '\n'));
      add_data(std::move(data));
      line_ = line;
      at_ = body;
      if (kind == '#')
        skip_comment();
      else
        read_tag(kind == '%');
    }
    add(Token::Kind::end, "end of the template");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void wrong(std::string_view what) const { fail(Code::bad_file, "[chat template:{}] {}", line_, what); }

  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void add_data(std::string text) {
    if (!text.empty()) add(Token::Kind::data, std::move(text));
  }

  size_t next_tag() const {
    for (size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1)) {
      const char c = i + 1 < source_.size() ? source_[i + 1] : '\0';
      if (c == '{' || c == '%' || c == '#') return i;
    }
    return std::string::npos;
  }

  // lstrip_blocks: white space between the start of the line and the tag goes.
  void strip_line_start(std::string& data) const {
    const size_t newline = data.rfind('\n');
    if (newline == std::string::npos && !line_starting_) return;
    const size_t begin = newline == std::string::npos ? 0 : newline + 1;
    if (std::all_of(data.begin() + static_cast<i64>(begin), data.end(), is_space)) data.resize(begin);
  }

  // After the end of a tag: `-` takes all white space; a block or comment without `+` takes one newline.
  void after_tag(char sign, bool trims) {
    const size_t begin = at_;
    if (sign == '-')
      while (at_ < source_.size() && is_space(source_[at_])) line_ += source_[at_++] == '\n';
    else if (sign != '+' && trims && at_ < source_.size() && source_[at_] == '\n')
      line_ += source_[at_++] == '\n';
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  void skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) wrong("got a comment without end");
    const char last = end > at_ ? source_[end - 1] : '\0';
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<i64>(at_), source_.begin() + static_cast<i64>(end), '\n'));
    at_ = end + 2;
    after_tag(last, true);
  }

  void read_tag(bool block) {
    add(block ? Token::Kind::block_begin : Token::Kind::print_begin, block ? "{%" : "{{");
    const std::string close = block ? "%}" : "}}";
    std::string open;  // brackets that wait to be closed
    for (;;) {
      while (at_ < source_.size() && is_space(source_[at_])) line_ += source_[at_++] == '\n';
      if (at_ >= source_.size()) wrong("got a tag without end");
      const std::string_view rest = std::string_view(source_).substr(at_);
      const char sign = rest[0] == '-' || (block && rest[0] == '+') ? rest[0] : '\0';
      if (open.empty() && rest.substr(sign ? 1 : 0).starts_with(close)) {
        add(block ? Token::Kind::block_end : Token::Kind::print_end, close);
        at_ += close.size() + (sign ? 1 : 0);
        after_tag(sign, block);
        return;
      }
      if (rest[0] == '"' || rest[0] == '\'')
        read_string(rest[0]);
      else if (is_digit(rest[0]))
        read_number();
      else if (is_name_start(rest[0]))
        read_name();
      else
        read_operator(open);
    }
  }

  void read_name() {
    const size_t begin = at_;
    while (at_ < source_.size() && (is_name_start(source_[at_]) || is_digit(source_[at_]))) at_++;
    add(Token::Kind::name, source_.substr(begin, at_ - begin));
  }

  void read_number() {
    const size_t begin = at_;
    auto digits = [&] {
      while (at_ < source_.size() && (is_digit(source_[at_]) || source_[at_] == '_')) at_++;
    };
    digits();
    bool real = false;
    if (at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1])) {
      real = true;
      at_++;
      digits();
    }
    if (at_ < source_.size() && (source_[at_] == 'e' || source_[at_] == 'E')) {
      const size_t sign = at_ + 1 < source_.size() && (source_[at_ + 1] == '-' || source_[at_ + 1] == '+') ? 2 : 1;
      if (at_ + sign < source_.size() && is_digit(source_[at_ + sign])) {
        real = true;
        at_ += sign;
        digits();
      }
    }
    std::string text = source_.substr(begin, at_ - begin);
    std::erase(text, '_');
    if (text.size() > 40) wrong("got a number of more than 40 digits");
    add(real ? Token::Kind::real : Token::Kind::integer, text);
  }

  void read_operator(std::string& open) {
    const std::string_view rest = std::string_view(source_).substr(at_);
    for (std::string_view op : {"**", "//", "==", "!=", "<=", ">="})
      if (rest.starts_with(op)) {
        add(Token::Kind::op, std::string(op));
        at_ += 2;
        return;
      }
    const char c = rest[0];
    if (std::string_view("+-*/%~[](){}<>=.:|,").find(c) == std::string_view::npos)
      wrong(fmt::format("got the character \"{}\", which begins no expression",
                        valid_utf8(rest.substr(0, static_cast<size_t>(code_point_at(rest, 0).bytes)))));
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) wrong(fmt::format("got \"{}\" without its opening bracket", c));
      open.pop_back();
    }
    add(Token::Kind::op, std::string(1, c));
    at_++;
  }

  std::int32_t read_hex(size_t digits) {
    std::int32_t value = 0;
    for (size_t k = 0; k < digits; k++, at_++) {
      const char c = at_ < source_.size() ? source_[at_] : '\0';
      const int d = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
      if (d < 0) wrong("got an escape without its hexadecimal digits");
      if (value > 0x10FFFF) wrong("got an escape past U+10FFFF");
      value = value * 16 + d;
    }
    if (value > 0x10FFFF) wrong("got an escape past U+10FFFF");
    return value;
  }

  // Escapes as in Python: an unknown one keeps its backslash.
  void read_escape(std::string& out) {
    const char c = source_[at_++];
    static constexpr std::string_view kFrom = "ntrabfv\\'\"", kTo = "\n\t\r\a\b\f\v\\'\"";
    if (const size_t k = kFrom.find(c); k != std::string_view::npos) {
      out += kTo[k];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_utf8(out, read_hex(c == 'x' ? 2 : c == 'u' ? 4 : 8));
    } else if (c >= '0' && c <= '7') {
      std::int32_t value = c - '0';
      for (int more = 0; more < 2 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7'; more++)
        value = value * 8 + (source_[at_++] - '0');
      append_utf8(out, value);
    } else if (c != '\n') {
      out += '\\';
      out += c;
    }
  }

  void read_string(char quote) {
    const int begin_line = line_;
    std::string out;
    for (at_++;;) {
      if (at_ >= source_.size()) {
        line_ = begin_line;
        wrong("got a string without end");
      }
      const char c = source_[at_++];
      if (c == quote) break;
      line_ += c == '\n';
      if (c == '\\' && at_ < source_.size())
        read_escape(out);
      else
        out += c;
    }
    add(Token::Kind::text, std::move(out));
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace plait::text::tmpl
