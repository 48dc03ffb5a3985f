package bpe_test

import (
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// fragments are what texts that try the patterns' corners are made of.
var fragments = []string{
	"hello", " world", "Hello", "HELLO", "camelCase", "HTTPServer", " iPhone", "x", " y", "Z", "ſ", "'ſ", "'S", "K",
	"\n", "\n\n", "\r\n", "\r", " ", "  ", "   ", "\t", "\v", "\f", "\x1c", "\x85", "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001",
	"\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u180e", "\u200b", "\ufeff", "\u200d", "\x00", "\x01", "\x7f", "\u00ad",
	"'s", "'LL", "'re", "'vE", "'d", "'m", "'T", "'", "''", "'l", "'r", "’s", "don't", "WE'LL", "123", "4567", "0", " 1", "٣", "½", "Ⅷ", "²", "一二", "〇",
	"/", "//", "\n/", "/\n", ";", "}", "{", "{\n", "_", "-", "--", "==", "\\n", ".", "...", "?", "\"", ":\n", "!", " !", " (", "\n- ", "\n    ", "    x", ":/\r/\n",
	"e\u0301", "\u0301", "\u0323\u0307", "\u0307\u0323", "Å", "\u0345", "\u212b", "\u2126", "ﬁ", "ŉ", "ẞ", "ß", "ǅ", "ʰ", "ª", "É", "ñ", "İ", "ı",
	"你好", "世界。", "カ\u3099", "か", "ー", "・", "\u3097", "\u3040", "゠", "龥", "龦", "㐀", "𠀀", "가", "ᄀ", "ᅡ", "ᆨ", "각", "한국어", "ไทย", "हिन्दी", "क़", "العربية", "עברית",
	"🎉", "👩‍👩‍👧", "🏳️‍🌈", "€", "𝔘", "\u0378", "\ue000", "\U000e0100", "\U0010fffd", "\U00011938", "\U000105c9", "\u1ac1", "\u0898", "\u1c80", "\ua7cb",
}

// samples of what real texts are like.
const (
	sampleEnglish = "The router asks which pod already holds the longest prefix of a request; it's cheaper than computing it again. " +
		"In 2024 they'd measured 25-115 ms of tokenization per request, and \"never mind\" was all the answer we'd got!\n\n" +
		"However, prompts of 100,000 tokens are real: documents, chats, tool output (JSON, logs, diffs). Don't guess.\n"
	sampleCode = "func (t *Table) Match(hashes []SeqHash, scope uint32) (n int, err error) {\n\tfor i, h := range hashes {\n" +
		"\t\tif b, ok := t.blocks[h]; !ok || b.refs == 0x1F {\n\t\t\treturn i, fmt.Errorf(\"block %d: %w\", i, errMissing)\n\t\t}\n\t}\n" +
		"\t// TODO: http://example.com/a/b?q=1&r=2#frag\n\treturn len(hashes), nil\n}\n\nclass HTTPServer(BaseServer):\n    def __init__(self, maxConn=128):\n        self.maxConn = maxConn  # ¯\\_(ツ)_/¯\n"
	sampleChinese = "推理服务器把处理过的提示词的键值缓存按固定大小的块保存起来。路由器如果把请求发送到已经持有最长前缀的实例，就可以省去大部分预填充计算。" +
		"在2024年的测试中，首个令牌的延迟从745毫秒降到272毫秒；命中率从62%提高到90%。\n它必须精确：一个不同的令牌，后面所有的块都不同，而且没有任何错误报告。\n"
	sampleLog = "2026-11-29T21:55:27.103Z INFO  [scheduler-3] req=4f1c9a2e-77b0-4d11-9c55-0f3e6b1d2a90 blocks=1024/4096 lat=12.7ms path=/v1/query?x=%20\r\n" +
		"\tat com.example.Foo$Bar.run(Foo.java:123)\r\n{\"level\":\"warn\",\"msg\":\"late\",\"ids\":[1,22,333,4444],\"ok\":false}\n"
)

// randomText returns a text of at most about n bytes, of one of several kinds.
// It is valid UTF-8.
func randomText(r *rand.Rand, n int) string {
	var b strings.Builder
	samples := []string{sampleEnglish, sampleCode, sampleChinese, sampleLog}
	kind := r.IntN(6)
	for b.Len() < n {
		switch k := kind; {
		case k == 0 || k == 5 && r.IntN(3) == 0:
			b.WriteString(valid(fragments[r.IntN(len(fragments))]))
		case k == 1 || k == 5 && r.IntN(4) == 0:
			b.WriteRune(randomRune(r))
		case k == 2 || k == 5 && r.IntN(4) == 0:
			s := valid(fragments[r.IntN(len(fragments))])
			b.WriteString(strings.Repeat(s, 1+r.IntN(max(1, min(200, n/len(s))))))
		case k == 3:
			s := samples[r.IntN(len(samples))]
			from := r.IntN(len(s))
			b.WriteString(strings.ToValidUTF8(s[from:min(len(s), from+1+r.IntN(60))], ""))
		default:
			b.WriteByte(byte(r.IntN(128)))
		}
	}
	return b.String()
}

// randomRune returns any character, those of the lower planes more
// often.
func randomRune(r *rand.Rand) rune {
	limits := []rune{0x80, 0x250, 0x800, 0x3100, 0x10000, 0x20000, utf8.MaxRune + 1}
	for {
		if c := r.Int32N(limits[r.IntN(len(limits))]); utf8.ValidRune(c) {
			return c
		}
	}
}

// valid replaces invalid UTF-8 as decoding JSON does.
func valid(s string) string { return string([]rune(s)) }
