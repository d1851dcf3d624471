//! Shell commands of a script, as far as they stay in the namespace.

use std::{fs, path::Path, process::Command};

use crate::machine::{Meaning, commands, understand};

/// Programs whose work ends with the namespace, or that only wait or look.
const HARMLESS: [&str; 11] = [
    "sysctl", "ip", "tc", "ethtool", "nstat", "ss", "sleep", "true", ":", "grep", "sync",
];
/// Programs that are left out: what they do is done otherwise, or needs not be.
const LEFT_OUT: [&str; 2] = ["tcpdump", "pkill"];
/// What a shell would carry out inside of a command.
const INSIDE: [&str; 2] = ["`", "<("];

/// Runs the commands of `text` in `folder`. Gives the first that checks the connection and has
/// failed.
///
/// # Errors
/// A command that would reach beyond the namespace, and none has run then; one that sets something
/// that this kernel does not have.
pub fn run(text: &str, folder: &Path) -> Result<Option<String>, String> {
    let commands = commands(text);
    for (_, command) in &commands {
        permit(command, folder)?;
    }
    let mut failed = None;
    for (_, command) in commands {
        let Some(said) = carry_out(&command, folder)? else {
            continue;
        };
        match understand(&command) {
            Meaning::Check(_) => failed = failed.or(Some(said)),
            // Scripts remove what may not be there.
            Meaning::Pace(false) if command.contains(" del") => (),
            _ => return Err(said),
        }
    }
    Ok(failed)
}

/// A kernel parameter of the namespace.
pub fn set(key: &str, value: &str) -> Result<(), String> {
    let pair = format!("{}={value}", parameter(key)?);
    match said(Command::new("sysctl").args(["-q", "-w", &pair]))? {
        None => Ok(()),
        Some(reason) => Err(format!("sysctl {pair}: {reason}")),
    }
}

/// The name of a parameter that a namespace has for itself.
fn parameter(key: &str) -> Result<&str, String> {
    match key.starts_with("net.") {
        true => Ok(key),
        false => Err(format!("parameter {key}, which is not of a namespace")),
    }
}

fn program(command: &str) -> &str {
    let first = command.split_whitespace().next().unwrap_or("");
    first.rsplit('/').next().unwrap_or(first)
}

/// An error says that the command reaches beyond the namespace, or may.
fn permit(command: &str, folder: &Path) -> Result<(), String> {
    if let Some((first, second)) = command.split_once("||") {
        return permit(first.trim(), folder).and_then(|()| permit(second.trim(), folder));
    }
    let beyond = || {
        Err(format!(
            "command {command}, which may reach beyond the namespace"
        ))
    };
    let plain = command.replace("$((", "");
    if plain.contains("..")
        && !matches!(
            understand(command),
            Meaning::Defaults { .. } | Meaning::Set(_)
        )
    {
        return beyond();
    }
    if plain.contains("$(") || INSIDE.iter().any(|sign| plain.contains(sign)) {
        return beyond();
    }
    for target in plain.split('>').skip(1) {
        let target = target.trim_start_matches('>').trim();
        let inside = ["/dev/null", "&1", "/proc/sys/net/", "/tmp/"];
        if !inside.iter().any(|place| target.starts_with(place)) {
            return beyond();
        }
    }
    let words: Vec<&str> = command.split_whitespace().collect();
    match understand(command) {
        Meaning::Set(pairs) => pairs
            .iter()
            .try_for_each(|(key, _)| parameter(key).map(drop)),
        Meaning::Defaults { .. } => {
            let (text, folder) = file(command, folder)?;
            let commands = commands(&text);
            commands
                .iter()
                .try_for_each(|(_, command)| permit(command, &folder))
        }
        _ if program(command).starts_with("sysctl_restore") => Ok(()),
        _ if LEFT_OUT.contains(&program(command)) => Ok(()),
        _ if matches!(program(command), "rm" | "dd") => {
            let mut paths = words.iter().skip(1).filter(|word| word.contains('/'));
            let inside = |word: &&str| word.contains("/tmp/") || word.contains("/dev/zero");
            if paths.all(inside) { Ok(()) } else { beyond() }
        }
        _ if words.contains(&"netns") || words.contains(&"-n") || words.contains(&"-netns") => {
            beyond()
        }
        _ if HARMLESS.contains(&program(command)) => Ok(()),
        _ => beyond(),
    }
}

/// The text of a script of commands, and its folder.
fn file(command: &str, folder: &Path) -> Result<(String, std::path::PathBuf), String> {
    let name = command.split_whitespace().next().unwrap_or("");
    let path = folder.join(name);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let folder = path.parent().unwrap_or(folder).to_owned();
    Ok((text, folder))
}

/// Carries out a command that is permitted; gives what it said if it has failed.
fn carry_out(command: &str, folder: &Path) -> Result<Option<String>, String> {
    let name = program(command);
    if name.starts_with("sysctl_restore") || LEFT_OUT.contains(&name) {
        return Ok(None);
    }
    match understand(command) {
        Meaning::Defaults { .. } => {
            let (text, folder) = file(command, folder)?;
            // A kernel need not have all of them, and scripts do not look.
            for (_, command) in commands(&text) {
                carry_out(&command, &folder)?;
            }
            return Ok(None);
        }
        Meaning::Set(pairs) if name == "set_sysctls.py" => {
            for (key, value) in pairs {
                set(&key, &value)?;
            }
            return Ok(None);
        }
        _ => (),
    }
    let history = std::env::temp_dir().join(format!("pd-nstat-{}", std::process::id()));
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .current_dir(folder)
        .env("NSTAT_HISTORY", &history);
    let said = said(&mut shell)?;
    Ok(said.map(|reason| format!("command {command} failed{reason}")))
}

/// What a program that fails says.
fn said(program: &mut Command) -> Result<Option<String>, String> {
    let output = program
        .output()
        .map_err(|error| format!("cannot run a command: {error}"))?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().next().unwrap_or("");
    Ok(Some(if first.is_empty() {
        String::new()
    } else {
        format!(": {first}")
    }))
}

/// Removes what commands may have left.
pub fn clean() {
    let _ = fs::remove_file(std::env::temp_dir().join(format!("pd-nstat-{}", std::process::id())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_reach_beyond_the_namespace_are_not_run() {
        let folder = Path::new("/nowhere");
        for command in [
            "sysctl -q net.ipv4.tcp_sack=0",
            "sysctl -w net.ipv4.tcp_rmem='4096 1 2' > /dev/null 2>&1",
            "ip tcp_metrics flush all > /dev/null 2>&1",
            "tc qdisc add dev tun0 root pfifo",
            "ethtool -K tun0 tso off gso off",
            "nstat | grep TcpExtBeyondWindow | grep -q \" 1 \"",
            "sysctl -q net.ipv4.x=1 || sysctl -q net.ipv4.y=$((3*4))",
            "echo 1 > /proc/sys/net/ipv4/tcp_sack",
            "dd bs=1M count=2 if=/dev/zero of=/tmp/testfile status=none",
            "/bin/rm -rf /tmp/testfile",
            "sysctl -q net.ipv4.x=1 &> /dev/null",
            "/tmp/sysctl_restore_1.sh",
        ] {
            assert_eq!(permit(command, folder), Ok(()), "{command}");
        }
        for command in [
            "echo 3 > /sys/module/tcp_cubic/parameters/hystart_detect",
            "sysctl -w kernel.panic=1",
            "sysctl -q net.ipv4.tcp_sack=0 || reboot",
            "ip netns exec other ip link del eth0",
            "sysctl -q net.ipv4.tcp_sack=$(cat /etc/passwd)",
            "true > /etc/passwd",
            "rm -rf /",
            "rm -rf /tmp/../etc",
            "dd if=/dev/zero of=/dev/sda",
            "python3 x.py",
            "nowhere/defaults.sh",
        ] {
            assert!(permit(command, folder).is_err(), "{command}");
        }
    }
}
