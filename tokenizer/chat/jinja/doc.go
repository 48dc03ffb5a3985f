// Package jinja renders chat templates to the text that Hugging Face's
// transformers gives for them, byte for byte, or says that it cannot.
//
// # How
//
// A template is read by a lexer and a parser of our own that follow Jinja2
// 3.1 in the configuration of transformers (trim_blocks, lstrip_blocks, loop
// controls, {% generation %}). The tree answers what an engine asks of a
// template before it renders: which names it uses ([Template.Uses]) and
// whether it loops over the parts of a message ([Template.WantsParts]). From
// the tree a program of Go functions is made, one for each statement and
// expression, with a place for every variable: a long chat has hundreds of
// messages, and a template looks at each a dozen times. What touches values are
// functions of this package: operators, filters, tests, methods. They do what
// Python does with the value at hand, raise where Python raises, and count what
// they cost.
//
// # What is refused
//
// [Compile] refuses a template that uses anything this package does not do
// exactly as Python: an unknown filter, test, method or function, {% include %}
// and the other ways to load templates, recursive loops, Markup that would
// escape what it is added to. [Template.Render] refuses what only shows in the
// values, such as upper-casing text beyond ASCII. Both are an
// [*UnsupportedError]. What the template itself refuses (raise_exception), or
// what is an error in Python, is a [*RaisedError]. There is no third way to
// fail. One error of Python's is none here: an attribute of a value that is
// not there is not there either. An engine refuses such a chat, so nothing
// hangs on its text.
//
// # Bounds
//
// Templates come from operators, values from anyone. A render counts work: one
// unit for each call, for four items of a slice and for 64 bytes copied, ten
// for each round of a loop. It ends at [Limits].Work, at [Limits].Output bytes, and at 200 macros deep.
// A panic becomes an error.
//
// A Template is safe for concurrent use; a render has its own state.
package jinja
