package jinja

import (
	"strconv"
	"strings"
	"time"
)

// opStrftime is transformers' strftime_now: the time now, by C's strftime in
// the C locale.
func opStrftime(r *run, args []val, kw map[string]val) (val, error) {
	p, err := params(args, kw, "format")
	if err != nil {
		return val{}, err
	}
	if !p[0].isString() {
		return p[0], raised("strftime() argument must be str")
	}
	s, err := strftime(r.now(), p[0].asString())
	return newString(s), err
}

func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format) // glibc: no padding
		if plain {
			i++
		}
		s, ok := directive(t, format[i])
		if !ok {
			return "", unsupported("strftime_now with %%%c", format[i])
		}
		if plain {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func directive(t time.Time, c byte) (string, bool) {
	pad := func(n, width int) string {
		s := strconv.Itoa(n)
		return strings.Repeat("0", max(width-len(s), 0)) + s
	}
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006",
		'd': "02", 'D': "01/02/06", 'e': "_2", 'F': "2006-01-02", 'H': "15", 'I': "03", 'm': "01", 'M': "04",
		'p': "PM", 'R': "15:04", 'S': "05", 'T': "15:04:05", 'x': "01/02/06", 'X': "15:04:05", 'y': "06", 'Y': "2006",
	}
	if l, ok := layouts[c]; ok {
		return t.Format(l), true
	}
	switch c {
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'j':
		return pad(t.YearDay(), 3), true
	case 'w':
		return strconv.Itoa(int(t.Weekday())), true
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1), true
	case 'f':
		return pad(t.Nanosecond()/1000, 6), true
	case 's':
		return strconv.FormatInt(t.Unix(), 10), true
	case 'z', 'Z': // datetime.now() has no zone
		return "", true
	}
	return "", false
}
