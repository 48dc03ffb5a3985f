package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvindex/kvindex/events"
	"github.com/kvindex/kvindex/events/discovery"
)

// discoveryConfig says where instances are found.
type discoveryConfig struct {
	DNS []dnsConfig `koanf:"dns" yaml:"dns"` // names of headless services
}

// dnsConfig is a name whose addresses are instances. One that begins with _ is
// asked for SRV records.
type dnsConfig struct {
	Name       string        `koanf:"name" yaml:"name"`
	Model      string        `koanf:"model" yaml:"model"`             // without one each engine is asked
	Port       int           `koanf:"port" yaml:"port"`               // of events, rank 0; without one: the SRV record's, else the engine is asked
	ReplayPort int           `koanf:"replay_port" yaml:"replay_port"` // likewise of replays
	DPRanks    int           `koanf:"dp_ranks" yaml:"dp_ranks"`       // ranks at consecutive ports; default 1
	URLPort    int           `koanf:"url_port" yaml:"url_port"`       // of the engine's HTTP server: it is asked what it serves, at every contact
	BlockSize  int           `koanf:"block_size" yaml:"block_size"`
	TenantID   string        `koanf:"tenant_id" yaml:"tenant_id"`
	Interval   time.Duration `koanf:"interval" yaml:"interval"` // between two questions; default 5s
	Server     string        `koanf:"server" yaml:"server"`     // HOST:PORT of a DNS server; default the system's
}

// names are what DNS is asked for.
func (c *config) names() []discovery.Name {
	var out []discovery.Name
	for _, d := range c.Discovery.DNS {
		n := discovery.Name{
			Name: d.Name, Model: d.Model, Port: d.Port, ReplayPort: d.ReplayPort, Ranks: d.DPRanks, URLPort: d.URLPort,
			BlockSize: d.BlockSize, Tenant: d.TenantID, Interval: d.Interval, Server: d.Server,
		}
		for _, m := range c.Models {
			if m.Name == n.Model {
				n.ServedAs = m.Aliases
				if n.BlockSize == 0 {
					n.BlockSize = m.BlockSize
				}
			}
		}
		out = append(out, n)
	}
	return out
}

// validateDNS says what is wrong with the names.
func (c *config) validateDNS() error {
	var errs []error
	seen := map[string]int{}
	for i, n := range c.names() {
		if err := n.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("discovery.dns[%d] (%s): %w", i, n.Name, err))
		}
		if other, taken := seen[n.Name]; taken {
			errs = append(errs, fmt.Errorf("discovery.dns[%d].name: %q is taken by discovery.dns[%d]", i, n.Name, other))
		}
		seen[n.Name] = i
	}
	return errors.Join(errs...)
}

// awaitedAtStart reports whether /readyz waits for what source brought.
func awaitedAtStart(source string) bool {
	return source == "static" || source == events.TransportNATS || source == discovery.SourceDNS
}

// dnsCollector shows how names are doing as metrics.
type dnsCollector struct {
	dns            *discovery.DNS
	lookups, hosts *prometheus.Desc
}

// dnsCollectors are the metrics of a service that asks DNS.
func dnsCollectors(d *discovery.DNS, c *config) []prometheus.Collector {
	if len(c.Discovery.DNS) == 0 {
		return nil
	}
	return []prometheus.Collector{&dnsCollector{
		dns:     d,
		lookups: prometheus.NewDesc("kvindex_dns_lookups_total", "Times that a name was looked up, by result: answered, failed.", []string{"name", "result"}, nil),
		hosts:   prometheus.NewDesc("kvindex_dns_hosts", "Hosts that a name leads to, by state: followed, asked, refused, missing.", []string{"name", "state"}, nil),
	}}
}

// Describe implements prometheus.Collector.
func (c *dnsCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.lookups
	ch <- c.hosts
}

// Collect implements prometheus.Collector.
func (c *dnsCollector) Collect(ch chan<- prometheus.Metric) {
	for _, r := range c.dns.Report() {
		ch <- prometheus.MustNewConstMetric(c.lookups, prometheus.CounterValue, float64(r.Lookups.Answered), r.Name, "answered")
		ch <- prometheus.MustNewConstMetric(c.lookups, prometheus.CounterValue, float64(r.Lookups.Failed), r.Name, "failed")
		for state, n := range r.Hosts {
			ch <- prometheus.MustNewConstMetric(c.hosts, prometheus.GaugeValue, float64(n), r.Name, state)
		}
	}
}
