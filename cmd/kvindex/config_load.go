package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

// envPrefix begins the name of every environment variable that is a key.
const envPrefix = "KVINDEX_"

// loadConfig reads the configuration: flag over environment over file over
// default. Every unknown key and every bad value is reported, at once.
func loadConfig(path string, environ []string, flags map[string]any) (config, error) {
	c := defaultConfig()
	k := koanf.New(".")
	var errs []error
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return c, fmt.Errorf("cannot read the configuration: %w", err)
		}
		if err := k.Load(rawbytes.Provider(text), yaml.Parser()); err != nil {
			return c, fmt.Errorf("cannot parse %s: %w", path, err)
		}
		errs = append(errs, unknownKeys(path, k.Raw(), reflect.TypeFor[config](), "")...)
	}
	fromEnv, envErrs := environment(environ)
	errs = append(errs, envErrs...)
	for _, layer := range []map[string]any{fromEnv, flags} {
		if err := k.Load(confmap.Provider(layer, "."), nil); err != nil {
			errs = append(errs, err)
		}
	}
	if err := k.Unmarshal("", &c); err != nil {
		errs = append(errs, fmt.Errorf("cannot use the configuration: %w", err))
		return c, errors.Join(errs...)
	}
	errs = append(errs, c.validate())
	return c, errors.Join(errs...)
}

// environment returns the keys that KVINDEX_ variables set. Values are YAML,
// so that lists fit too: KVINDEX_INSTANCES='[{id: pod-0, ...}]'.
func environment(environ []string) (map[string]any, []error) {
	keys := map[string]string{} // variable -> key
	for _, key := range leafKeys(reflect.TypeFor[config](), "") {
		keys[envPrefix+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = key
	}
	out := map[string]any{}
	var errs []error
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || name == "KVINDEX_CACHE" || // the set-up's own
			strings.HasPrefix(name, relayEnvPrefix) {
			continue
		}
		key, known := keys[name]
		if !known {
			errs = append(errs, fmt.Errorf("environment: %s is no key%s", name, nearest(name, slices.Collect(maps.Keys(keys)))))
			continue
		}
		var v any
		if err := yamlv3.Unmarshal([]byte(value), &v); err != nil {
			errs = append(errs, fmt.Errorf("environment: %s is not YAML: %w", name, err))
			continue
		}
		out[key] = v
	}
	return out, errs
}

// unknownKeys compares a parsed file with the keys that t has.
func unknownKeys(where string, have any, t reflect.Type, path string) []error {
	var errs []error
	switch t.Kind() {
	case reflect.Struct:
		m, ok := have.(map[string]any)
		if !ok {
			if have == nil {
				return nil
			}
			return []error{fmt.Errorf("%s: %s is not a mapping", where, path)}
		}
		fields := map[string]reflect.Type{}
		for f := range t.Fields() {
			fields[f.Tag.Get("koanf")] = f.Type
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			ft, known := fields[key]
			if !known {
				errs = append(errs, fmt.Errorf("%s: %s is no key%s", where, join(path, key), nearest(key, slices.Collect(maps.Keys(fields)))))
				continue
			}
			errs = append(errs, unknownKeys(where, m[key], ft, join(path, key))...)
		}
	case reflect.Slice:
		list, ok := have.([]any)
		if !ok {
			if have == nil {
				return nil
			}
			return []error{fmt.Errorf("%s: %s is not a list", where, path)}
		}
		for i, e := range list {
			errs = append(errs, unknownKeys(where, e, t.Elem(), fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return errs
}

// leafKeys lists the dotted keys of t: lists count as one.
func leafKeys(t reflect.Type, path string) []string {
	var keys []string
	for f := range t.Fields() {
		key := join(path, f.Tag.Get("koanf"))
		if f.Type.Kind() == reflect.Struct {
			keys = append(keys, leafKeys(f.Type, key)...)
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// nearest words a suggestion, if one of the names is close.
func nearest(name string, names []string) string {
	best, bestDist := "", max(2, len(name)/3)+1
	for _, n := range names {
		if d := editDistance(name, n); d < bestDist || d == bestDist && n < best {
			best, bestDist = n, d
		}
	}
	if best == "" {
		slices.Sort(names)
		return "; there are " + strings.Join(names, ", ")
	}
	return ": did you mean " + best + "?"
}

// editDistance is Levenshtein's.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(diag+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
