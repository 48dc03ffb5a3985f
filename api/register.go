package api

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/kvindex/kvindex/indexer"
)

// maxDPRank bounds dp_rank in requests.
const maxDPRank = 1<<16 - 1

// maxNameBytes bounds ids, names and addresses in registrations: they live as
// long as the instance does, and stand in every metric of it.
const maxNameBytes = 512

// registerFields are the names that a registration may have; those of other
// implementations that mean nothing here are taken and ignored.
func registerFields() []string {
	return []string{
		"instance_id", "model", "model_name", "modelname", "url", "endpoint", "replay_endpoint", "type",
		"tenant_id", "routing_group", "lora_name", "additional_salt", "additionalsalt", "block_size",
		"dp_rank", "aliases", "hash_profile", "cache_group",
	}
}

// decodeRegistration decodes the body of /register and /unregister.
func (s *scanner) decodeRegistration(strict bool) (r Registration, err error) {
	err = s.object(func(b []byte) error {
		name := string(b)
		if s.null() {
			return nil
		}
		known, err := s.registrationMember(&r, name)
		if err != nil || known {
			return err
		}
		if strict && !slices.Contains(registerFields(), name) {
			return unknownField(name, registerFields())
		}
		_, err = s.value()
		return err
	})
	if err == nil {
		err = s.end()
	}
	return r, err
}

// registrationMember decodes the value of one field. known is false, and
// nothing consumed, where the field means nothing.
func (s *scanner) registrationMember(r *Registration, name string) (known bool, err error) {
	switch name {
	case "instance_id":
		if r.InstanceID, r.NumericID, err = s.instanceID(name); err == nil {
			err = checkName(name, r.InstanceID)
		}
	case "model", "model_name", "modelname":
		err = s.sameName(name, &r.Model, "")
	case "url":
		err = s.sameName(name, &r.URL, "")
	case "endpoint":
		err = s.sameName(name, &r.Endpoint, "")
	case "replay_endpoint":
		err = s.sameName(name, &r.ReplayEndpoint, "")
	case "type":
		err = s.sameName(name, &r.Type, "")
	case "tenant_id", "routing_group":
		err = s.sameName(name, &r.Tenant, indexer.DefaultTenant)
	case "lora_name":
		err = s.sameName(name, &r.LoRA, "")
	case "additional_salt", "additionalsalt":
		err = s.sameName(name, &r.Salt, "")
	case "block_size":
		r.BlockSize, err = s.integer(name, 1, maxBlockSize)
	case "dp_rank":
		var rank int
		if rank, err = s.integer(name, 0, maxDPRank); err == nil {
			r.DPRank = &rank
		}
	case "aliases":
		err = s.aliases(r, name)
	default:
		return false, nil
	}
	return true, err
}

// maxAliases bounds the configured aliases of one instance.
const maxAliases = 64

func (s *scanner) aliases(r *Registration, name string) error {
	if s.peek() != '[' {
		return invalid(name, "%s is not an array of strings", name)
	}
	return s.array(func(n int) error {
		at := name + "[" + strconv.Itoa(n) + "]"
		if n == maxAliases {
			return tooLarge(name, "an instance may have %d aliases", maxAliases)
		}
		alias, err := s.str(at)
		if err == nil {
			err = checkName(at, alias)
		}
		r.Aliases = append(r.Aliases, alias)
		return err
	})
}

// sameName is sameStr for a name that is kept.
func (s *scanner) sameName(field string, p *string, neutral string) error {
	if err := s.sameStr(field, p, neutral); err != nil || *p == "" {
		return err
	}
	return checkName(field, *p)
}

// checkName refuses names that could not be shown to anyone.
func checkName(field, name string) error {
	switch {
	case name == "":
		return invalid(field, "%s is empty", field)
	case len(name) > maxNameBytes:
		return invalid(field, "%s is longer than %d bytes", field, maxNameBytes)
	case strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return invalid(field, "%s has a control character in it", field)
	}
	return nil
}

// checkRegistration finds what is wrong with r as far as that can be seen
// without asking the engine.
func checkRegistration(r *Registration) error {
	if r.URL != "" {
		u, err := url.Parse(r.URL)
		if err == nil && u.User != nil {
			return invalid("url", "url has credentials in it, which would be shown wherever the instance is")
		}
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return invalid("url", "url is %s, which is neither an http:// nor an https:// address", shown(r.URL))
		}
	}
	if err := checkEndpoint("endpoint", r.Endpoint); err != nil {
		return err
	}
	if err := checkEndpoint("replay_endpoint", r.ReplayEndpoint); err != nil {
		return err
	}
	if r.URL != "" {
		return nil // the engine is asked for the rest
	}
	e := &IncompleteError{Detail: "or url alone, where the engine describes itself"}
	for _, f := range []struct{ name, value string }{
		{"instance_id", r.InstanceID}, {"model", r.Model}, {"endpoint", r.Endpoint},
	} {
		if f.value == "" {
			e.Missing = append(e.Missing, f.name)
		}
	}
	if len(e.Missing) > 0 {
		return e
	}
	return nil
}

// checkEndpoint accepts tcp://HOST:PORT with something to connect to, and
// ipc://PATH.
func checkEndpoint(field, endpoint string) error {
	if endpoint == "" {
		return nil
	}
	scheme, rest, ok := strings.Cut(endpoint, "://")
	if !ok || rest == "" || (scheme != "tcp" && scheme != "ipc") {
		return invalid(field, "%s is %s, which is neither tcp://HOST:PORT nor ipc://PATH", field, shown(endpoint))
	}
	if scheme == "ipc" {
		return nil
	}
	colon := strings.LastIndexByte(rest, ':')
	if colon <= 0 {
		return invalid(field, "%s is %s, which has no port", field, shown(endpoint))
	}
	host, port := rest[:colon], rest[colon+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return invalid(field, "%s is %s, whose port is not a number in 1..65535", field, shown(endpoint))
	}
	if host == "*" {
		return &InvalidError{field, field + " is " + shown(endpoint) + ", which is what the engine binds: give the address at which kvindex can reach it"}
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && a.IsUnspecified() {
		return &InvalidError{field, field + " is " + shown(endpoint) + ", an address to bind and not to connect to"}
	}
	return nil
}

// registration reads and decodes the body.
func (s *Server) registration(c *gin.Context) (Registration, error) {
	w := s.getWork()
	defer s.putWork(w)
	var err error
	if w.body, err = readBody(c, w.body, min(s.limits.BodyBytes, 64<<10)); err != nil {
		return Registration{}, err
	}
	w.scan.reset(w.body)
	return w.scan.decodeRegistration(isStrict(c.Request))
}

// handleRegister answers POST /register: 201 for a new registration, 200 for
// the same again.
func (s *Server) handleRegister(c *gin.Context) error {
	r, err := s.registration(c)
	if err != nil {
		return err
	}
	if err := checkRegistration(&r); err != nil {
		return err
	}
	out, err := s.fleet.Register(c.Request.Context(), r)
	if err != nil {
		return err
	}
	status, said := http.StatusOK, "already registered"
	if out.Created {
		status, said = http.StatusCreated, "registered successfully"
	}
	return s.writeJSON(c, status, struct {
		Status     string `json:"status"`
		InstanceID string `json:"instance_id"`
		Model      string `json:"model"`
	}{said, out.ID, out.Model})
}

// handleUnregister answers POST /unregister.
func (s *Server) handleUnregister(c *gin.Context) error {
	r, err := s.registration(c)
	if err != nil {
		return err
	}
	if r.InstanceID == "" {
		return missing("instance_id", "instance_id says what to unregister, and is missing")
	}
	ok, err := s.fleet.Unregister(c.Request.Context(),
		Unregistration{InstanceID: r.InstanceID, Model: r.Model, Tenant: r.Tenant, DPRank: r.DPRank})
	if err != nil {
		return err
	}
	if !ok {
		return notFound("nothing like it is registered under instance_id %s", shown(r.InstanceID))
	}
	return s.writeJSON(c, http.StatusOK, struct {
		Status  string   `json:"status"`
		Removed []string `json:"removed_instances"`
	}{"unregistered successfully", []string{r.InstanceID}})
}
