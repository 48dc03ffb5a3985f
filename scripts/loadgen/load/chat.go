package load

import "strconv"

// words of one token in the vocabularies of most models, with the space before
// them.
var words = [...]string{
	"time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state", "family",
	"student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system", "program",
	"question", "work", "government", "number", "night", "point", "home", "water", "room", "mother", "area", "money",
	"story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue", "side", "kind",
	"head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law",
}

// AppendText appends about n tokens of text that depend on seed.
func AppendText(b []byte, seed uint64, n int) []byte {
	for i := range n {
		x := mix(seed<<20 + uint64(i))
		b = append(b, words[x%uint64(len(words))]...)
		if b = append(b, ' '); i%12 == 11 {
			b[len(b)-1] = '.'
			b = append(b, ' ')
		}
	}
	return b
}

// appendMessage appends one message of a chat. Text is of this package: it
// needs no escapes.
func appendMessage(b []byte, role string, seed uint64, n int) []byte {
	b = append(b, `{"role":"`+role+`","content":"`...)
	b = AppendText(b, seed, n)
	return append(b, `"}`...)
}

// chatBlock is how many tokens of text an id stands for: one less than in the
// trace's blocks for what templates put around a message.
const chatBlock = TraceBlock - 6

// ChatOf returns the body of a chat whose messages say what ids stand for, one
// a message: chats that begin with equal ids begin equally.
func ChatOf(model string, ids []uint64) []byte {
	b := appendModel(nil, model)
	b = append(b, `,"messages":[`...)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		b = appendMessage(b, role, id, chatBlock)
	}
	if len(ids)%2 == 0 {
		if len(ids) > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"role":"user","content":"Go on."}`...)
	}
	return append(b, "]}"...)
}

// Turns are chats that begin alike and end each with a question of its own,
// which nobody has asked before.
type Turns struct {
	begin []byte // up to the last message
	turn  int    // tokens of the question
	seed  uint64
}

// NewTurns returns chats of about n tokens, of which the last message has turn.
func NewTurns(model string, seed uint64, n, turn int) *Turns {
	t := &Turns{begin: appendModel(nil, model), turn: turn, seed: seed}
	t.begin = append(t.begin, `,"messages":[`...)
	for i := range max(2, (n-turn)/TraceBlock) &^ 1 {
		t.begin = appendMessage(t.begin, []string{"user", "assistant"}[i&1], seed<<12+uint64(i), chatBlock)
		t.begin = append(t.begin, ',')
	}
	return t
}

// Body implements Source.
func (t *Turns) Body(n uint64, buf *[]byte) []byte {
	b := (*buf)[:0]
	b = append(b, t.begin...)
	b = append(b, `{"role":"user","content":"`...)
	b = strconv.AppendUint(b, n, 10)
	b = append(b, ' ')
	b = AppendText(b, mix(t.seed)>>32<<10+n, t.turn)
	b = append(b, `"}]}`...)
	*buf = b
	return b
}
