//! An agent and a userspace switch on one host, with traffic through both, as their operator sees
//! them. Needs root, Linux 6.12 and python3.

use std::process::{Command, Stdio};

use serde_json::Value;

/// In namespaces of its own, because the switch is asked at its usual place. Tenants `ka` and `kb`
/// are in the kernel, `west` and `east` at ports; all answers follow after their names.
const SCRIPT: &str = r#"
set -eu
mount --make-rprivate /
for place in "proc proc /proc" "tmpfs none /run" "sysfs none /sys" "bpf none /sys/fs/bpf"; do
	set -- $place && mount -t "$1" "$2" "$3"
done
mkdir -p /run/sluicegate /run/netns
ip link set lo up
printf '[[rule]]\nname = "of-agent"\nalgorithm = "dctcp"\nmode = "enforce"\n' >/run/agent.toml
printf '[[rule]]\nname = "other"\ntenant = "nobody"\nmode = "off"\n' >/run/switch-policy.toml
printf '[[rule]]\nname = "of-switch"\nalgorithm = "cubic"\nmode = "enforce"\n' >>/run/switch-policy.toml
cat >/run/switch.toml <<END
[switch]
policy = "switch-policy.toml"
[[port]]
name = "west"
tap = "sgwest"
govern = true
[[port]]
name = "east"
tap = "sgeast"
END
cat >/run/traffic.py <<END
import socket, sys, time
at = (sys.argv[2], 5000)
if sys.argv[1] == "take":
    server = socket.create_server(at)
    print(flush=True)
    taker = server.accept()[0]
    while taker.recv(65536):
        pass
else:
    sender = socket.create_connection(at)
    while True:
        sender.send(b"x" * 8192)
        time.sleep(0.001)
END
"$SG" switch run /run/switch.toml 2>/run/switch.log &
until [ -e /sys/class/net/sgeast ] && "$SG" switch show >/run/said 2>&1; do sleep 0.05; done
ip link add br0 type bridge
ip link set br0 up
for tenant in ka kb west east; do ip netns add "$tenant"; done
for tenant in ka kb; do
	ip link add "veth-$tenant" type veth peer name eth0 netns "$tenant"
	ip link set "veth-$tenant" up master br0
done
"$SG" agent --policy /run/agent.toml --interface 'veth-*' 2>/run/agent.log &
for side in west east; do
	ip link set "sg$side" netns "$side"
	ip -n "$side" link set "sg$side" name eth0
done
number=1
for tenant in ka kb west east; do
	ip -n "$tenant" link set eth0 up
	case $tenant in k*) net=10.8.0 ;; *) net=10.9.0 ;; esac
	ip -n "$tenant" address add "$net.$number/24" dev eth0
	number=$((number + 1))
done
# A bridge hears of a link late, and drops frames until then.
for port in veth-ka veth-kb; do
	until bridge link show dev "$port" | grep -q 'state forwarding'; do
		ip link show dev "$port" >/dev/null
	done
done
until grep -q 'enforcing; stop' /run/agent.log; do sleep 0.05; done
for pair in ka:10.8.0.1:kb west:10.9.0.3:east; do
	IFS=: read -r taker address sender <<<"$pair"
	coproc TAKER { exec ip netns exec "$taker" python3 /run/traffic.py take "$address"; }
	read -r _ <&"${TAKER[0]}"
	exec {held}<&"${TAKER[0]}"
	ip netns exec "$sender" python3 /run/traffic.py send "$address" &
done
until [ "$("$SG" flows --json | grep -c '"rule_name": "of-')" -ge 3 ]; do sleep 0.1; done 2>/run/said
answer() { echo "=== $1" && shift && "$SG" "$@"; }
answer flows flows --json
answer top top --once --interval 0.5
answer metrics metrics
answer explain policy explain --src 10.0.0.1 --dst 10.0.0.2 --json
answer explain-port policy explain --src 10.0.0.1 --dst 10.0.0.2 --interface west
answer explain-veth policy explain --src 10.0.0.1 --dst 10.0.0.2 --interface veth-ka
answer drops switch drops --json
"#;

struct Said(String);

impl Said {
    fn of(&self, name: &str) -> &str {
        let mut parts = self.0.split("=== ");
        let part = parts.find_map(|part| part.strip_prefix(&format!("{name}\n")));
        part.unwrap_or_else(|| panic!("no {name} in:\n{}", self.0))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(self.of(name)).expect("JSON")
    }
}

fn ask() -> Said {
    let output = Command::new("timeout")
        .args(["-k", "1", "60", "unshare", "--mount", "--net", "--pid"])
        .args(["--fork", "--kill-child", "bash", "-c", SCRIPT])
        .env("SG", env!("CARGO_BIN_EXE_sluicegate"))
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {error}\n{said}",
        output.status
    );
    Said(said)
}

#[test]
fn an_agent_and_a_switch_are_seen_at_once_and_told_apart() {
    let said = ask();
    let flows = said.json("flows");
    let flows = flows["flows"].as_array().expect("flows").iter();
    let mut rules: Vec<_> = flows
        .map(|flow| {
            let text = |key: &str| flow[key].as_str().unwrap_or_default().to_owned();
            (text("tenant"), text("rule_name"), text("algorithm"))
        })
        .collect();
    rules.sort();
    let wanted = [
        ("ka", "of-agent", "cubic"),
        ("kb", "of-agent", "cubic"),
        ("west", "of-switch", "cubic"),
    ];
    let wanted = wanted.map(|(tenant, rule, algorithm)| {
        (tenant.to_owned(), rule.to_owned(), algorithm.to_owned())
    });
    assert_eq!(rules, wanted);
    for tenant in ["ka ", "kb ", "west "] {
        let top = said.of("top").lines();
        let lines = top.filter(|line| line.starts_with(tenant)).count();
        assert_eq!(
            lines,
            2,
            "{tenant}: a flow and a tenant\n{}",
            said.of("top")
        );
    }
    for line in [
        "sluicegate_up 1",
        "sluicegate_interface_flows{tenant=\"ka\",interface=\"veth-ka\"} 1",
        "sluicegate_interface_flows{tenant=\"west\",interface=\"west\"} 1",
        "sluicegate_switch_port_up{port=\"east\",kind=\"tap\"} 1",
    ] {
        let metrics = said.of("metrics");
        assert!(metrics.contains(line), "{line} in:\n{metrics}");
    }
    let explained = said.json("explain");
    let policies = explained["policies"].as_array().expect("two").iter();
    let of: Vec<_> = policies.map(|it| it["of"].as_str()).collect();
    assert_eq!(of, [Some("agent"), Some("switch")]);
    let port = said.of("explain-port");
    assert!(port.contains("rule 2 \"of-switch\" decides"), "{port}");
    let veth = said.of("explain-veth");
    assert!(veth.contains("rule 1 \"of-agent\" decides"), "{veth}");
    // The interfaces are in other namespaces by now, and have other names.
    let drops = said.json("drops");
    for port in drops.as_array().expect("ports") {
        assert!(port["drops"]["kernel"].is_u64(), "{port}");
    }
}
