package api

// field identifies a member of a request body. Several names may mean one
// field: the public convention has dialects.
type field uint8

const (
	fieldUnknown field = iota
	fieldModel
	fieldTenant
	fieldLoRA
	fieldSalt
	fieldTokens
	fieldTokensB64
	fieldSeqHashes
	fieldLocalHashes
	fieldPrompt
	fieldMessages
	fieldBlockSize
	fieldCandidates
	fieldInstance
	fieldMaxBlocks
	fieldTiers
	fieldExplain
	fieldTokenStrings
	fieldMatchMode
	fieldRequest // known, and of no concern to an index: part of an OpenAI request
)

// queryField is the field that name means in a query.
func queryField(name []byte) field {
	switch string(name) { // does not allocate
	case "model", "model_name", "modelname":
		return fieldModel
	case "tenant_id", "routing_group":
		return fieldTenant
	case "lora_name":
		return fieldLoRA
	case "cache_salt", "additional_salt", "additionalsalt":
		return fieldSalt
	case "token_ids", "tokens":
		return fieldTokens
	case "token_ids_b64":
		return fieldTokensB64
	case "seq_hashes", "block_hash":
		return fieldSeqHashes
	case "local_hashes", "block_hashes":
		return fieldLocalHashes
	case "prompt":
		return fieldPrompt
	case "messages":
		return fieldMessages
	case "block_size":
		return fieldBlockSize
	case "candidates":
		return fieldCandidates
	case "instance_id":
		return fieldInstance
	case "max_blocks":
		return fieldMaxBlocks
	case "tiers", "medium":
		return fieldTiers
	case "explain":
		return fieldExplain
	case "match_mode":
		return fieldMatchMode
	case "return_token_strs":
		return fieldTokenStrings
	case "tools", "tool_choice", "chat_template", "chat_template_kwargs", "add_generation_prompt",
		"continue_final_message", "documents", "add_special_tokens", "stream", "stream_options",
		"max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "n", "stop", "seed", "user":
		return fieldRequest
	}
	return fieldUnknown
}

// queryFieldNames are the names to suggest for a misspelt one.
func queryFieldNames() []string {
	return []string{
		"model", "tenant_id", "lora_name", "cache_salt", "token_ids", "token_ids_b64", "seq_hashes",
		"local_hashes", "prompt", "messages", "block_size", "candidates", "instance_id", "max_blocks",
		"tiers", "explain", "match_mode", "tools", "chat_template_kwargs", "add_generation_prompt",
	}
}

// nearest returns the name in names that is closest to s in edits, "" where
// none is close enough to be meant.
func nearest(s string, names []string) string {
	best, at := len(s)/2+1, ""
	if best > 4 {
		best = 4
	}
	for _, name := range names {
		if d := edits(s, name, best); d < best {
			best, at = d, name
		}
	}
	return at
}

// edits is the Levenshtein distance of a and b, or limit if it is at least
// that.
func edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > 64 {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return min(row[len(b)], limit)
}
