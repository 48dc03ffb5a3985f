package indexer

import (
	"maps"
	"slices"
)

// maxLoRANames bounds how many adapter names are kept: events bring them, and
// events are not to be trusted with our memory.
const maxLoRANames = 1 << 14

// Models returns, sorted, the models that have a table or were declared with
// Alias or NoteLoRA.
func (x *Index) Models() []string {
	return slices.Sorted(maps.Keys(x.dir.Load().byModel))
}

// Alias makes name another name of model, in place of what name was an alias
// of before. It declares model, so that Resolve knows it before any event
// came; Alias(model, model) does only that.
func (x *Index) Alias(name, model string) {
	d := x.dir.Load()
	if _, declared := d.byModel[model]; declared && (name == model || d.aliases[name] == model) {
		return
	}
	x.change(func(d *directory) {
		d.declare(model)
		if name != model {
			d.aliases[name] = model
		}
	})
}

// NoteLoRA records that model has been seen, or is configured, to serve the
// adapter lora. It is cheap when that is known already, so that every event
// may say it. Names beyond the first 16,384 are not kept: queries reach those
// adapters by the model's name.
func (x *Index) NoteLoRA(model, lora string) {
	if lora == "" {
		return
	}
	d := x.dir.Load()
	if on := d.loras[lora]; slices.Contains(on, model) || (on == nil && len(d.loras) >= maxLoRANames) {
		return
	}
	x.change(func(d *directory) {
		on := d.loras[lora]
		if slices.Contains(on, model) {
			return
		}
		d.declare(model)
		on = append(slices.Clone(on), model)
		slices.Sort(on)
		d.loras[lora] = on
	})
}

// Resolve finds what a request's model name means. In this order: a model
// means itself; an alias means its model; the name of an adapter means the
// one model it was seen on, with that adapter. An adapter that was seen on
// several models means none of them (ok is false): a guess could match the
// request with another model's cache, so such requests must name both.
func (x *Index) Resolve(name string) (model, lora string, ok bool) {
	d := x.dir.Load()
	if _, ok := d.byModel[name]; ok {
		return name, "", true
	}
	if m, ok := d.aliases[name]; ok {
		return m, "", true
	}
	if on := d.loras[name]; len(on) == 1 {
		return on[0], name, true
	}
	return "", "", false
}

// declare makes model known, with no table.
func (d *directory) declare(model string) {
	if _, ok := d.byModel[model]; !ok {
		d.byModel[model] = nil
	}
}
