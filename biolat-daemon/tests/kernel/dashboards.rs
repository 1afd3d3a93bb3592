//! The rules and dashboards in `deploy/`: every query returns data in a real Prometheus that scrapes a real daemon under load.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, iter,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::support::{
    block::set_attribute,
    daemon::{Daemon, wait_for},
    load::{StopFlag, Target},
    loop_device::LoopDevice,
    prometheus::{ALERT_RULES, Prometheus, new_program, recording_rules_with},
    settled::settled,
};

/// Panels and rules that can show only zeros, and why. All others must show something else.
const AT_ZERO: [(&str, &str); 19] = [
    ("Dropped records of slow I/Os", "there are few slow or failed I/Os"),
    ("Unavailable phases", "it lists missing phases, whose value is 0"),
    ("Is the age exact?", "exact on some kernels"),
    ("Missed completions", "the kernel runs the probe for nearly every completion"),
    ("Failed and late collections", "this daemon is healthy"),
    ("Slow I/O", SLOW),
    ("Slow I/O by threshold", SLOW),
    ("Slow I/Os", SLOW),
    ("instance_device_over:biolat_slow_ios:rate5m", SLOW),
    ("model_over:biolat_slow_ios:rate5m", SLOW),
    ("Worst drives now", COMPLETES),
    ("Oldest I/O", COMPLETES),
    ("Oldest I/O by drive", COMPLETES),
    ("Oldest I/O in flight", COMPLETES),
    ("I/Os in flight now", COMPLETES),
    ("instance_device:biolat_inflight_ios:sum", COMPLETES),
    ("instance_device:biolat_inflight_ios:worst_sum", COMPLETES),
    ("instance_device:biolat_oldest_inflight_seconds:max", COMPLETES),
    ("model:biolat_oldest_inflight_seconds:max", COMPLETES),
];
const SLOW: &str = "no device here takes that long";
const COMPLETES: &str = "usually no I/O is in flight";

/// Has data only where the kernel records a submission timestamp, except in a panel that adds it to the queue latency.
const OF_ADMISSION: &str = "biolat_admission_latency";
const WITH_ADMISSION: &str = "Share of time waiting";

/// Series that do not exist here: the NUMA node of a loop device is unknown, no device is too busy to take a request, nothing is
/// stacked on the devices, the daemon does not restart, no I/O takes a second, no drive has peers to be compared with, and there
/// are neither volumes nor claims. `deploy/grafana/synthetic.py` covers these.
const ABSENT: [&str; 8] = [
    "biolat_completion_off_node_share",
    "biolat_requeues_total",
    "biolat_device_holder_info",
    "changes(process_start_time_seconds",
    "} >= 1) and topk(10,",
    "biolat_slowdown:score1w",
    OF_VOLUMES,
    OF_CLAIMS,
];

/// Histograms by model, and their quantiles. Their rules multiply histograms, which Debian's Prometheus does not support.
const OF_MODELS: [&str; 3] = [
    "model_op:biolat_device_latency_seconds",
    "model_class_op:biolat_total_latency_seconds",
    "model_op:biolat_total_latency_seconds:p99",
];

/// Rules of volumes, by pod and by claim; there are none here.
const OF_VOLUMES: &str = "biolat_volume_";
const BELOW_VOLUMES: &str = "instance_device_drive:";
const OF_PODS: &str = "namespace_pod_device_op";
const OF_CLAIMS: &str = "namespace_persistentvolumeclaim";

/// Name parts of rules that compare drives of the same model. Too few drives here share a model, and none is overloaded.
const OF_PEERS: [&str; 5] =
    ["_op_size_work:", "slowdown_rate5m", ":slow_rate5m", "biolat_slowdown:", "biolat_work:overloaded"];

/// A daemon, and devices for all panels: one is busy, one has errors, and one has no iostats.
struct DashboardSetup {
    busy: LoopDevice,
    failing: LoopDevice,
    unmeasured: LoopDevice,
    daemon: Daemon,
}

impl DashboardSetup {
    fn new() -> Self {
        let busy = LoopDevice::attach("busy", true);
        let failing = LoopDevice::attach("failing", false);
        // Direct I/O beyond the end of the backing file fails.
        failing.file().set_len(1 << 20).unwrap();
        let unmeasured = LoopDevice::attach("unmeasured", true);
        set_attribute(&unmeasured.name, "queue/iostats", "0");
        let daemon = Daemon::start(&["--interval", "200ms", "--probe-stats", "--loop"]);
        Self { busy, failing, unmeasured, daemon }
    }

    /// Runs a check while the devices are under load.
    fn under_load(&self, check: impl FnOnce()) {
        let stop = StopFlag::default();
        thread::scope(|scope| {
            let _stopper = stop.set_on_drop();
            scope.spawn(|| {
                let [busy, failing, unmeasured] =
                    [&self.busy, &self.failing, &self.unmeasured].map(|device| Target::open(&device.path()));
                while !stop.is_set() {
                    busy.read(20);
                    busy.write(20);
                    busy.try_read_at(0, 128 << 10).unwrap();
                    busy.flush();
                    failing.try_read_at(64 << 20, 4096).unwrap_err();
                    unmeasured.read(5);
                    thread::sleep(Duration::from_millis(20));
                }
            });
            check();
        });
    }

    /// Starts a Prometheus that scrapes the daemon as a node of a cluster, and evaluates the rules every second.
    fn prometheus(&self, kind: &Kind) -> Prometheus {
        let rules = recording_rules_with(kind.rules, "1s", "[5m]");
        let config = format!(
            "global: {{evaluation_interval: 1s}}\n\
             rule_files: [rules.yml, alerts.yml]\n\
             scrape_configs:\n\
             - job_name: biolat\n  \
               scrape_interval: 500ms\n  \
               scrape_timeout: 500ms\n  \
               {}\n  \
               static_configs:\n  \
               - {{targets: ['{}'], labels: {{instance: node, cluster: lab}}}}\n",
            kind.scrape, self.daemon.address
        );
        let alerts = ALERT_RULES
            .replace("interval: 4m\n", "interval: 1s\n")
            .replace("interval: 5m\n", "interval: 1s\n");
        let files = [("prometheus.yml", &*config), ("rules.yml", &rules), ("alerts.yml", &alerts)];
        Prometheus::run(kind.name, &kind.program, kind.flags, &files)
    }
}

/// A loop device keeps its attributes after its file is detached.
impl Drop for DashboardSetup {
    fn drop(&mut self) {
        set_attribute(&self.unmeasured.name, "queue/iostats", "1");
    }
}

/// A kind of Prometheus, with its rules and dashboard.
struct Kind {
    name: &'static str,
    program: OsString,
    flags: &'static [&'static str],
    scrape: &'static str,
    rules: &'static str,
    dashboard: &'static str,
    /// Whether it supports the rules in [`OF_MODELS`].
    has_models: bool,
}

/// Prometheus 3.8 or later.
fn native() -> Kind {
    Kind {
        name: "prometheus-native",
        program: new_program(),
        flags: &[],
        scrape: "scrape_native_histograms: true",
        rules: "recording.yml",
        dashboard: "biolat.json",
        has_models: true,
    }
}

/// Debian's Prometheus, with the feature flag.
fn native_by_flag() -> Kind {
    Kind {
        name: "prometheus-flag",
        program: "prometheus".into(),
        flags: &["--enable-feature=native-histograms"],
        scrape: "",
        has_models: false,
        ..native()
    }
}

/// Debian's Prometheus, without the flag.
fn classic() -> Kind {
    Kind {
        name: "prometheus-classic",
        program: "prometheus".into(),
        flags: &[],
        scrape: "",
        rules: "recording-classic.yml",
        dashboard: "biolat-classic.json",
        has_models: true,
    }
}

fn deploy(file: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy")).join(file)
}

/// A query of a dashboard, and its panel.
struct Query {
    panel: String,
    expression: String,
}

/// Returns all panels, including those in collapsed rows.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let rows = dashboard["panels"].as_array().unwrap();
    rows.iter().flat_map(|row| iter::once(row).chain(row["panels"].as_array().into_iter().flatten()))
}

/// Returns a dashboard's queries as Grafana sends them with `All` selected.
fn queries(dashboard: &str, devices: &str) -> Vec<Query> {
    let json: Value =
        serde_json::from_slice(&fs::read(deploy(&format!("grafana/{dashboard}"))).unwrap()).unwrap();
    let all = |text: &str| {
        let mut text =
            text.replace("$__rate_interval", "10s").replace("$__range", "30s").replace("$device", devices);
        for variable in ["$cluster", "$node", "$model", "$op"] {
            text = text.replace(variable, ".*");
        }
        assert!(!text.contains('$'), "unknown variable: {text}");
        text
    };
    let variables = json["templating"]["list"].as_array().unwrap().iter().filter_map(|variable| {
        let query = variable["query"]["query"].as_str()?;
        let (metric, label) =
            query.strip_prefix("label_values(")?.strip_suffix(')')?.rsplit_once(", ").unwrap();
        // Loop devices have no model.
        let label = if label == "model" { "device" } else { label };
        Some((format!("variable {}", variable["name"]), format!("count by ({label}) ({metric}) > 0")))
    });
    let annotations = json["annotations"]["list"].as_array().unwrap().iter().map(|annotation| {
        (format!("annotation {}", annotation["name"]), annotation["expr"].as_str().unwrap().to_owned())
    });
    let panels = panels(&json).flat_map(|panel| {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
        targets.iter().map(move |target| (title.to_owned(), target["expr"].as_str().unwrap().to_owned()))
    });
    let queries = variables.chain(annotations).chain(panels);
    queries.map(|(panel, expression)| Query { panel, expression: all(&expression) }).collect()
}

/// Returns the value of a series in a response, or the count of its histogram.
fn number(series: &Value) -> f64 {
    let value = series["value"][1].as_str().or_else(|| series["histogram"][1]["count"].as_str());
    value.unwrap().parse().unwrap()
}

/// Whether this panel or rule shows data.
fn shows_data(name: &str, answer: &[Value]) -> bool {
    let at_zero = AT_ZERO.iter().any(|(zero, _)| *zero == name);
    answer.iter().map(number).any(|value| value.is_finite() && (value > 0.0 || at_zero && value == 0.0))
}

/// Whether the kernel records submission timestamps for any device.
fn has_admission(prometheus: &Prometheus) -> bool {
    wait_for("a scrape of the daemon", || !prometheus.vector("biolat_device_info").is_empty());
    const LACKS_IT: &str = "biolat_device_phase_available{phase=\"admission\"} == 0";
    !prometheus.vector(&format!("biolat_device_info unless on (instance, device) {LACKS_IT}")).is_empty()
}

fn check_queries_have_data(kind: &Kind) {
    let setup = DashboardSetup::new();
    let prometheus = setup.prometheus(kind);
    let devices = [&setup.busy, &setup.failing, &setup.unmeasured].map(|device| &*device.name).join("|");
    let queries = queries(kind.dashboard, &devices);
    assert!(queries.len() > 40, "{}", queries.len());
    setup.under_load(|| {
        let has_admission = has_admission(&prometheus);
        for query in &queries {
            let needs_admission = query.expression.contains(OF_ADMISSION) && query.panel != WITH_ADMISSION;
            if !kind.has_models && OF_MODELS.iter().any(|name| query.expression.contains(name))
                || needs_admission && !has_admission
                || ABSENT.iter().any(|metric| query.expression.contains(metric))
            {
                continue;
            }
            wait_for(&format!("{}: {}", query.panel, query.expression), || {
                shows_data(&query.panel, &prometheus.vector(&query.expression))
            });
        }
        check_rules(kind, &prometheus, has_admission);
    });
}

/// Asserts that every rule can be evaluated and every recording rule returns data.
fn check_rules(kind: &Kind, prometheus: &Prometheus, has_admission: bool) {
    let rules = prometheus.get("rules").unwrap();
    let rules: Vec<_> = rules["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    assert!(rules.len() > 25, "{}", rules.len());
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{} on {}: {}", rule["name"], kind.name, rule["lastError"]);
        let name = rule["name"].as_str().unwrap();
        let is_recorded = (kind.has_models || !OF_MODELS.iter().any(|of_models| name.starts_with(of_models)))
            && (has_admission || !name.contains(OF_ADMISSION))
            && !name.starts_with(OF_PODS)
            && !name.starts_with(OF_CLAIMS)
            && !name.starts_with(BELOW_VOLUMES)
            && !name.contains(OF_VOLUMES)
            && !OF_PEERS.iter().any(|part| name.contains(part));
        if rule["type"] == "recording" && is_recorded {
            wait_for(&format!("{name} on {}", kind.name), || shows_data(name, &prometheus.vector(name)));
            assert!(!prometheus.vector(rule["query"].as_str().unwrap()).is_empty(), "{name}");
        }
    }
}

#[test]
#[ignore = "needs root and Prometheus 3.8: cargo xtask deploy grafana"]
fn new_prometheus_has_data_for_every_query() {
    check_queries_have_data(&native());
}

#[test]
#[ignore = "needs root and prometheus: cargo xtask deploy grafana"]
fn old_prometheus_with_flag_has_data_for_every_query() {
    check_queries_have_data(&native_by_flag());
}

#[test]
#[ignore = "needs root and prometheus: cargo xtask deploy grafana"]
fn classic_prometheus_has_data_for_every_query() {
    check_queries_have_data(&classic());
}

/// Returns a device's recorded series by their labels.
fn recorded(prometheus: &Prometheus, device: &str) -> BTreeMap<String, f64> {
    let series = prometheus
        .vector(&format!("{{__name__=~\"instance_device.*\", device=\"{device}\", op!=\"flush\"}}"));
    series.iter().map(|series| (series["metric"].to_string(), number(series))).collect()
}

/// Lowest bucket bound of classic histograms, in seconds. Smaller values cannot be told apart.
const FIRST_BOUND: f64 = 1.0 / 65_536.0;

/// A classic bucket is two octaves wide, a native one an eighth of an octave, so quantiles agree within two octaves.
#[test]
#[ignore = "needs root and Prometheus 3.8: cargo xtask deploy grafana"]
fn native_and_classic_rules_agree() {
    let setup = DashboardSetup::new();
    let (new, old) = (setup.prometheus(&native()), setup.prometheus(&classic()));
    let device = &setup.busy.name;
    let target = Target::open(&setup.busy.path());
    target.read(1);
    target.write(1);
    let mut both = (BTreeMap::new(), BTreeMap::new());
    wait_for("recorded reads and writes in both", || {
        both = (recorded(&new, device), recorded(&old, device));
        both.0.len() >= 8 && both.0.keys().eq(both.1.keys())
    });
    // From here on, both scrape the whole load, so they differ only in when they started.
    for _ in 0..20 {
        target.read(500);
        target.write(300);
        thread::sleep(Duration::from_millis(500));
    }
    settled(&setup.daemon, device);
    thread::sleep(Duration::from_secs(3));
    both = (recorded(&new, device), recorded(&old, device));
    assert!(both.0.len() >= 14 && both.0.keys().eq(both.1.keys()), "{both:#?}");
    // The slowest I/O may be in only one of the two windows.
    for (name, new) in both.0.iter().filter(|(name, _)| !name.contains(":p100_")) {
        let old = both.1[name];
        let is_quantile = [":p", ":topk_p", ":worst_p"].iter().any(|part| name.contains(part));
        let most = if is_quantile { 4.2 } else { 1.2 };
        let are_below = is_quantile && new.max(old) < FIRST_BOUND;
        assert!(
            are_below || (*new == 0.0 && old == 0.0) || (1.0 / most..most).contains(&(new / old)),
            "{name}: {new} of native histograms, {old} of classic ones"
        );
    }
}
