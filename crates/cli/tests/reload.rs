//! A policy that changes under a running agent, as a user sees it. Needs root.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::symlink,
    process::{Command, Output},
    thread,
    time::Duration,
};

use serde_json::Value;
use site::{Agent, Site, common::ip, eventually, text};
use sluicegate_agent::state::State;

use crate::site;

/// Two rules by the port of the server; everything else is left alone.
const TWO: &str = r#"
# The rule that the tests change.
[[rule]]
name = "near"          # a's to b's first server
destination = "10.9.0.0/24"
mode = "observe"
algorithm = "cubic"
"#;

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// The state file, once it knows of a reload that ended this way.
fn after_reload(site: &Site, adopted: bool) -> State {
    site.state_when(|state| {
        let reload = state.reload.as_ref();
        reload.is_some_and(|reload| reload.adopted == adopted)
    })
}

/// Some bytes over a connection that is open, and back.
fn exchange((client, server): &mut (TcpStream, TcpStream)) {
    let sent: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    let mut received = vec![0; sent.len()];
    thread::scope(|scope| {
        scope.spawn(|| client.write_all(&sent).unwrap());
        server.read_exact(&mut received).unwrap();
    });
    assert_eq!(received, sent);
    server.write_all(b"yes").unwrap();
    let mut answer = [0; 3];
    client.read_exact(&mut answer).unwrap();
}

fn flow_of(site: &Site, client: &TcpStream) -> Value {
    let local = client.local_addr().unwrap().to_string();
    let flows = site.flow_records();
    let flow = flows
        .iter()
        .find(|flow| flow["local"] == local.as_str() && flow["interface"] == "ta");
    flow.unwrap_or_else(|| panic!("no flow of {local} in {flows:#?}"))
        .clone()
}

/// Waits until a flow is known as of this tenant and rule: `flows` reads names in the state file,
/// which the agent writes after the line in its log.
fn await_names(site: &Site, client: &TcpStream, tenant: &str, rule: &str) {
    eventually(
        || flow_of(site, client),
        |flow| flow["tenant"] == tenant && flow["rule_name"] == rule,
    );
}

/// A warning of `policy check` is in the log at a start and at a reload, with the bandwidth that
/// it is about.
#[test]
fn what_a_policy_leaves_open_is_in_the_log_at_a_start_and_at_a_reload() {
    let site = Site::new();
    let enforcing = "[[rule]]\nmode = 'enforce'\n";
    site.write_policy("policy.toml", enforcing);
    let agent = Agent::start(site.agent_command("policy.toml"));
    let watched = agent.wait_for("MPTCP took 273");
    assert!(
        watched.contains("WARN") && watched.contains("class watched-tcp"),
        "{watched}"
    );
    let others = agent.wait_for("UDP took 281");
    assert!(
        others.contains("WARN") && others.contains("class non-tcp"),
        "{others}"
    );
    let bare = agent.wait_for("segments without data");
    assert!(
        bare.contains("WARN") && bare.contains("class bare-tcp"),
        "{bare}"
    );
    agent.wait_for("enforcing; stop");
    let counts = "[[bucket]]\nclass = ['watched-tcp', 'non-tcp', 'bare-tcp']\nrate = '1Gbit'\n";
    site.write_policy("policy.toml", &format!("{enforcing}{counts}"));
    let noted = agent.wait_for("counts non-tcp, watched-tcp and bare-tcp");
    assert!(noted.contains("INFO"), "{noted}");
    agent.wait_for("policy reloaded");
}

#[test]
fn a_changed_file_comes_into_force_and_a_broken_one_does_not() {
    let site = Site::new();
    site.write_policy("policy.toml", TWO);
    let agent = site.agent();
    let mut connection = site.host.transfer(100_000);
    let flow = flow_of(&site, &connection.0);
    assert_eq!(
        (&flow["reason"], &flow["enforced"], &flow["rule_name"]),
        (&"observe".into(), &false.into(), &"near".into())
    );

    // As editors do it: another file takes the name.
    site.write_policy("next", &TWO.replace("observe", "enforce"));
    fs::rename(
        site.directory.join("next"),
        site.directory.join("policy.toml"),
    )
    .unwrap();
    let line = agent.wait_for("near: same conditions, other treatment");
    assert!(!line.contains("ERROR"), "{line}");
    agent.wait_for("policy reloaded");
    exchange(&mut connection);
    let flow = flow_of(&site, &connection.0);
    assert_eq!(flow["enforced"], true, "{flow:#?}");

    let before = after_reload(&site, true).policy;
    site.write_policy("policy.toml", "[[rule]]\nbeta = 7\nmode = 'no'\n");
    agent.wait_for("is not taken over");
    agent.wait_for("policy.toml:2:8: rule[0].beta");
    agent.wait_for("policy.toml:3:8: rule[0].mode");
    exchange(&mut connection);
    let state = after_reload(&site, false);
    assert_eq!(state.policy, before);
    let reload = state.reload.unwrap();
    assert_eq!(reload.problems.len(), 2, "{reload:?}");

    // The same again, by signal and after a mistake was mended in place.
    agent.signal("-HUP");
    agent.wait_for("as it was");
    site.write_policy("policy.toml", TWO);
    agent.wait_for("policy reloaded");
    after_reload(&site, true);
    assert_eq!(agent.stop(), Some(0));
}

/// An empty file, and one that ends behind its first rule, are policies as well.
#[test]
fn a_file_that_is_probably_not_whole_is_taken_when_asked_for_or_renamed() {
    let site = Site::new();
    let three = TWO.replace("observe", "enforce")
        + "[[rule]]\nmode = \"observe\"\n[[bucket]]\nclass = \"udp\"\nrate = \"1Gbit\"\n";
    site.write_policy("policy.toml", &three);
    let agent = site.agent();
    let mut connection = site.host.transfer(100_000);
    // It is in force anew, with a later time, each time that it is written again.
    let what = |state: State| (state.policy.fingerprint, state.policy.rules);
    let whole = what(site.state());
    for (cut, why) in [
        (0, "is empty"),
        (
            three.find("[[rule]]\nmode").unwrap(),
            "has 1 rules and 2 are in force",
        ),
        (
            three.find("[[bucket]]").unwrap(),
            "has 0 buckets and 1 are in force",
        ),
    ] {
        site.write_policy("policy.toml", &three[..cut]);
        let line = agent.wait_for("was written in place");
        assert!(line.contains("WARN") && line.contains(why), "{line}");
        assert_eq!(what(after_reload(&site, false)), whole);
        exchange(&mut connection);
        assert_eq!(flow_of(&site, &connection.0)["enforced"], true);
        site.write_policy("policy.toml", &three);
        agent.wait_for("policy reloaded");
        after_reload(&site, true);
    }
    // It is meant.
    site.write_policy("policy.toml", "");
    agent.wait_for("was written in place");
    agent.signal("-HUP");
    agent.wait_for("policy reloaded");
    assert!(after_reload(&site, true).policy.rules.is_empty());
    site.write_policy("policy.toml", &three);
    agent.wait_for("policy reloaded");
    // Renamed into its place it is whole.
    site.write_policy("next", TWO);
    fs::rename(
        site.directory.join("next"),
        site.directory.join("policy.toml"),
    )
    .unwrap();
    agent.wait_for("policy reloaded");
    // An agent that starts by itself after a crash does not end what is in force.
    agent.kill();
    site.write_policy("policy.toml", "");
    let output = site.agent_command("policy.toml").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.contains("policy.toml is empty"), "{said}");
    assert_eq!(site.attached("ta"), ["from_tenant"]);
}

/// An agent that starts by itself after a crash takes nothing that it has held back before.
#[test]
fn a_file_that_was_held_back_is_at_the_next_start_too() {
    let site = Site::new();
    let two = TWO.to_owned() + "[[rule]]\nmode = \"observe\"\nalgorithm = \"cubic\"\n";
    site.write_policy("policy.toml", &two);
    let agent = site.agent();
    let cut = &two[..two.rfind("algorithm").unwrap()];
    site.write_policy("policy.toml", cut);
    agent.wait_for("was written in place");
    after_reload(&site, false);
    agent.kill();
    let said = refused(&site);
    let why = "is the beginning of what is in force";
    assert!(said.contains(&format!("policy.toml {why}")), "{said}");
    // Another policy that was written in place is whole.
    site.write_policy("policy.toml", &two.replace("cubic", "dctcp"));
    assert_eq!(site.agent().stop(), Some(0));
}

/// What an agent says that does not start, whatever it was that it took no file for.
fn refused(site: &Site) -> String {
    let output = site.agent_command("policy.toml").output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(site.attached("ta"), ["from_tenant"], "{said}");
    said
}

/// With the state of the agent before, without it, and behind another layout of the maps.
#[test]
fn a_start_takes_a_policy_with_less_only_if_it_was_renamed_into_its_place() {
    let site = Site::new();
    let whole = "# Two rules and a bucket.\n".to_owned()
        + &TWO.replace("observe", "enforce")
        + "[[rule]]\nmode = \"observe\"\n[[bucket]]\nclass = \"udp\"\nrate = \"1Gbit\"\n";
    site.write_policy("policy.toml", &whole);
    let agent = site.agent();
    site.state_when(|state| state.interfaces.len() == 2);
    agent.kill();
    let cuts = [
        (0, "is empty"),
        (9, "has 0 rules and 2 are in force"),
        (
            whole.find("[[rule]]\nmode").unwrap(),
            "has 1 rules and 2 are in force",
        ),
        (
            whole.find("[[bucket]]").unwrap(),
            "has 0 buckets and 1 are in force",
        ),
    ];
    let refuses_all = || {
        for (cut, why) in cuts {
            site.write_policy("policy.toml", &whole[..cut]);
            let said = refused(&site);
            assert!(said.contains(&format!("policy.toml {why}")), "{said}");
            assert!(said.contains("2 rules and 1 buckets"), "{said}");
        }
    };
    refuses_all();
    assert!(site.state().remarks()[0].contains("0 buckets and 1 are"));
    // What is in force is known from the kernel, too.
    let run_dir = site.run_dir();
    fs::remove_dir_all(&run_dir).unwrap();
    fs::write(&run_dir, "").unwrap();
    assert!(refused(&site).contains("cannot write it down"));
    fs::remove_file(&run_dir).unwrap();
    refuses_all();
    let rename = |text: &str| {
        site.write_policy("next", text);
        let to = site.directory.join("policy.toml");
        fs::rename(site.directory.join("next"), to).unwrap();
    };
    rename(TWO);
    let agent = site.agent();
    site.state_when(|state| state.interfaces.len() == 2);
    agent.kill();

    let ours = site.pins().root().parent().unwrap().to_owned();
    let theirs = ours.with_file_name("v1");
    fs::rename(&ours, &theirs).unwrap();
    site.write_policy("policy.toml", "# A policy");
    assert!(refused(&site).contains("has 0 rules and 1 are in force"));
    rename("# A policy without rules.\n");
    let agent = site.agent();
    assert!(!theirs.exists());
    assert_eq!(agent.stop(), Some(0));
}

/// The agent looks at its file every 10 seconds without news, too.
#[test]
fn a_file_that_a_writer_keeps_open_is_taken_when_it_is_closed() {
    let site = Site::new();
    site.write_policy("policy.toml", TWO);
    let agent = site.agent();
    let before = site.state_when(|state| state.interfaces.len() == 2).policy;
    let mut writer = File::create(site.directory.join("policy.toml")).unwrap();
    let (first, rest) = TWO.split_at(TWO.find("mode").unwrap());
    writer.write_all(first.as_bytes()).unwrap();
    thread::sleep(Duration::from_millis(10_500));
    // A machine that is busy may look between two writes: then it is held back.
    let state = site.state();
    assert_eq!(state.policy, before);
    assert!(state.reload.is_none_or(|reload| !reload.adopted));
    let rest = rest.replace("observe", "enforce");
    writer.write_all(rest.as_bytes()).unwrap();
    drop(writer);
    agent.wait_for("near: same conditions, other treatment");
    after_reload(&site, true);
    assert_eq!(agent.stop(), Some(0));
}

#[test]
fn a_change_behind_a_link_and_a_directory_that_is_another_are_noticed() {
    let site = Site::new();
    let elsewhere = site.directory.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("real.toml"), TWO).unwrap();
    let shown = site.directory.join("shown");
    fs::create_dir(&shown).unwrap();
    symlink("../elsewhere/real.toml", shown.join("policy.toml")).unwrap();
    let agent = Agent::start(site.agent_command("shown/policy.toml"));
    agent.wait_for("enforcing; stop");
    fs::write(
        elsewhere.join("real.toml"),
        TWO.replace("observe", "enforce"),
    )
    .unwrap();
    agent.wait_for("policy reloaded");

    fs::rename(&shown, site.directory.join("gone")).unwrap();
    // Said once, however often it is looked for.
    agent.wait_for("is not taken over");
    fs::create_dir(&shown).unwrap();
    fs::write(shown.join("policy.toml"), TWO).unwrap();
    agent.wait_for("policy reloaded");
    assert_eq!(agent.stop(), Some(0));
}

#[test]
fn setting_a_rules_mode_waits_until_it_is_in_force() {
    let site = Site::new();
    site.write_policy("policy.toml", TWO);
    let agent = site.agent();
    let mut connection = site.host.transfer(100_000);

    let dry = site.set(&["enforce", "--rule", "near", "--dry-run"]);
    let shown = said(&dry);
    assert!(
        shown.contains("-mode = \"observe\"\n+mode = \"enforce\"\n"),
        "{shown}"
    );
    let local = connection.0.local_addr().unwrap().to_string();
    assert!(shown.contains(&format!("{local} to")), "{shown}");
    let policy = site.directory.join("policy.toml");
    assert_eq!(fs::read_to_string(&policy).unwrap(), TWO);

    let set = site.set(&["enforce", "--rule", "1"]);
    let shown = said(&set);
    assert!(set.status.success(), "{shown}");
    assert!(
        shown.contains("rule 1 \"near\" is enforce now") && shown.contains("in force"),
        "{shown}"
    );
    // No waiting: the command did.
    assert_eq!(flow_of(&site, &connection.0)["rule_mode"], "enforce");
    exchange(&mut connection);
    assert_eq!(
        fs::read_to_string(&policy).unwrap(),
        TWO.replace("\"observe\"", "\"enforce\"")
    );

    let unknown = site.set(&["off", "--rule", "far"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).contains("there are rule 1 \"near\""));
    let nonsense = site.set(&["on", "--rule", "near"]);
    assert_eq!(nonsense.status.code(), Some(2));

    agent.kill();
    let alone = site.set(&["observe", "--rule", "near"]);
    assert!(alone.status.success());
    assert!(said(&alone).contains("no agent runs on this file"));
}

#[test]
fn explaining_goes_by_the_policy_in_force() {
    let site = Site::new();
    site.write_policy(
        "policy.toml",
        "[[rule]]\nname = 'reds'\ntenant = 'red'\nmode = 'off'\n[[rule]]\nname = 'rest'\n",
    );
    let _agent = site.agent();
    let explain = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        command.args(["policy", "explain", "--run-dir", &site.run_dir()]);
        command.args(["--netns", &site.host.name("h")]).args(more);
        said(&command.output().unwrap())
    };
    let ends = ["--src", "10.9.0.1", "--dst", "10.9.0.2"];
    let vague = explain(&ends);
    assert!(
        vague.contains("rule 1 matches only at tenant red")
            && vague.contains("elsewhere rule 2 \"rest\" decides"),
        "{vague}"
    );
    // The agent knows whose interface it is.
    let told = explain(&[&ends[..], &["--interface", "ta"]].concat());
    assert!(
        told.contains("rule 1 does not match: tenant ta is not red"),
        "{told}"
    );
    let red = explain(&[&ends[..], &["--tenant", "red"]].concat());
    assert!(red.contains("rule 1 \"reds\" decides: mode off"), "{red}");
    let udp = explain(&[&ends[..], &["--protocol", "udp", "--json"]].concat());
    assert!(udp.contains("no bucket has class udp"), "{udp}");
}

#[test]
fn tenants_are_called_as_somebody_called_their_interface() {
    let site = Site::new();
    let h = site.host.name("h");
    ip(&["-n", &h, "link", "set", "ta", "alias", "blue"]);
    site.write_policy(
        "policy.toml",
        "[[rule]]\nname = 'blues'\ntenant = 'blue'\n[[rule]]\nname = 'reds'\ntenant = 'red'\n[[rule]]\nname = 'rest'\n",
    );
    let mut command = site.agent_command("policy.toml");
    command.args(["--label", "tb=mine", "auto"]);
    let agent = Agent::start(command);
    agent.wait_for("enforcing; stop");
    let (client, _server) = site.host.transfer(10_000);
    await_names(&site, &client, "blue", "blues");
    ip(&["-n", &h, "link", "set", "ta", "alias", "red"]);
    agent.wait_for("labelled");
    await_names(&site, &client, "red", "reds");
    site.state_when(|state| {
        let places = state.interfaces.values();
        let from: Vec<(&str, &str)> = places
            .map(|place| (place.tenant.as_str(), place.tenant_from.as_str()))
            .collect();
        from.contains(&("red", "alias")) && from.contains(&("mine", "label"))
    });

    // Without an alias it is called as the namespace at its other end.
    ip(&["-n", &h, "link", "set", "ta", "alias", ""]);
    let line = agent.wait_for("labelled");
    assert!(line.contains(&site.host.name("a")), "{line}");
    ip(&["-n", &h, "link", "set", "ta", "alias", "red"]);
    agent.wait_for("labelled");

    // The next agent knows them before it takes over: no flow changes its rule.
    let changed = |site: &Site| {
        let document: Value = serde_json::from_slice(&site.flows(&["--json"]).stdout).unwrap();
        document["counters"]["rule_changed"].as_u64().unwrap()
    };
    let before = changed(&site);
    agent.kill();
    let mut command = site.agent_command("policy.toml");
    command.args(["--label", "auto"]);
    let next = Agent::start(command);
    next.wait_for("enforcing; stop");
    assert_eq!(flow_of(&site, &client)["rule_name"], "reds");
    assert_eq!(changed(&site), before);
    assert_eq!(next.stop(), Some(0));
}
