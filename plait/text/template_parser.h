// Templates as trees: the lexer and parser of the Jinja subset (chat_template.h says what is in it).
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plait/text/template_value.h"

namespace plait::text::tmpl {

struct Token {
  enum class Kind { data, block_begin, block_end, print_begin, print_end, name, text, integer, real, op, end };
  Kind kind;
  std::string text;  // data, name, decoded string, digits, operator
  int line;
};

/// Cuts a template into tokens, with trim_blocks and lstrip_blocks on and one final newline dropped, as Hugging Face
/// renders chat templates.
///   errors  bad_file, with the line
std::vector<Token> lex(std::string_view source);

struct Expression {
  enum class Kind {
    constant,     // value
    variable,     // name
    list,         // children
    dict,         // children: key, value, key, value ...
    attribute,    // children[0].name
    item,         // children[0][children[1]]
    slice,        // children[0][children[1] : children[2] : children[3]], absent ones are null
    call,         // children[0](children[1...]), keywords as below
    filter,       // children[0] | name(children[1...])
    test,         // children[0] is name(children[1...])
    unary,        // name: not - +
    binary,       // name: + - * / // % ** ~ and or
    comparison,   // children[0] ops[0] children[1] ops[1] ...
    conditional,  // children[0] if children[1] else children[2] (may be null)
  };
  Kind kind;
  int line;
  int depth = 1;  // of the tree below, so that no walk recurses too far
  std::string name;
  Value value;
  std::vector<std::unique_ptr<Expression>> children;
  std::vector<std::string> keywords;  // call, filter, test: of the last keywords.size() children
  std::vector<std::string> ops;
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Statement {
  enum class Kind { data, print, if_, for_, set, set_block, break_, continue_ };
  struct Branch {
    ExpressionPtr condition;  // null: else
    Body body;
  };
  Kind kind;
  int line;
  std::string data;                  // data
  ExpressionPtr value;               // print, set; for_: what is iterated
  std::vector<std::string> targets;  // set, for_: one name, or several that unpack
  std::string attribute;             // set of a namespace's attribute
  ExpressionPtr condition;           // for_: `if`
  std::vector<Branch> branches;      // if_
  Body body, otherwise;              // for_, set_block
};

constexpr int kMaxNesting = 200;

///   errors  bad_file: names the construct and its line
Body parse(std::string_view source);

}  // namespace plait::text::tmpl
