//! Who may connect to the sockets of ports.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, lchown},
    path::Path,
};

use sluicegate_config::{problem::Complaint, table::Table};

/// The longest path of a socket, bytes (unix(7)).
pub const SOCKET_PATH_MAX: usize = 107;

/// Who may connect to a socket at which the switch listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Its mode; the process's umask decides if there is none, and no group.
    pub mode: Option<u32>,
    /// The number of its group.
    pub group: Option<u32>,
}

impl Access {
    /// The keys `socket_mode` and `socket_group`.
    pub(super) fn read(table: &Table<'_>) -> Self {
        Self {
            mode: table.parse("socket_mode", parse_mode),
            group: table.parse("socket_group", parse_group),
        }
    }

    /// What a port does not say, the switch does.
    pub(super) fn or(self, all: Self) -> Self {
        Self {
            mode: self.mode.or(all.mode),
            group: self.group.or(all.group),
        }
    }

    /// Gives a socket its group and its mode: with a group alone, 0660.
    ///
    /// # Errors
    /// The kernel's reason: giving a file to a group of others needs CAP_CHOWN.
    pub fn apply(self, path: &Path) -> io::Result<()> {
        let explain = |key| {
            move |error: io::Error| {
                io::Error::new(
                    error.kind(),
                    format!("{key} cannot be put in force: {error}"),
                )
            }
        };
        if self.group.is_some() {
            lchown(path, None, self.group).map_err(explain("socket_group"))?;
        }
        match self.mode.or(self.group.map(|_| 0o660)) {
            Some(mode) => fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .map_err(explain("socket_mode")),
            None => Ok(()),
        }
    }
}

fn parse_mode(text: &str) -> Result<u32, Complaint> {
    let mode = u32::from_str_radix(text, 8).ok();
    let mode = mode.filter(|&mode| text.len() == 4 && mode <= 0o777);
    mode.ok_or_else(|| {
        let reason = format!("'{text}' is no mode of a socket");
        Complaint::new(reason, "write four octal digits, such as \"0660\"")
    })
}

fn parse_group(text: &str) -> Result<u32, Complaint> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let groups = fs::read("/etc/group").unwrap_or_default();
    // A line that is no UTF-8 is of another group.
    let groups = String::from_utf8_lossy(&groups);
    let mut groups = groups.lines().map(|line| line.split(':'));
    let number = groups.find_map(|mut line| {
        let is_it = line.next() == Some(text);
        is_it.then(|| line.nth(1)?.parse().ok()).flatten()
    });
    number.ok_or_else(|| {
        let reason = format!("/etc/group has no group '{text}'");
        Complaint::new(reason, "name one of this host, or give its number")
    })
}

/// The path of a socket is not too long.
pub(super) fn check_length(table: &Table<'_>, key: &'static str) {
    let Some(item) = table.get(key) else { return };
    let bytes = item.text().map_or(0, str::len);
    if bytes > SOCKET_PATH_MAX {
        let reason =
            format!("the path of a socket has at most {SOCKET_PATH_MAX} bytes, not {bytes}");
        item.complain(
            reason,
            "choose a shorter one, such as one below /run/sluicegate",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn ports_take_what_the_switch_says_and_say_more() {
        let text = "[switch]\nsocket_group = \"0\"\n\
                    [[port]]\nname = \"a\"\nvhost_user = \"/tmp/a\"\n\
                    [[port]]\nname = \"b\"\nvhost_user = \"/tmp/b\"\nsocket_mode = \"0606\"\n\
                    socket_group = \"root\"\n";
        let config = Config::parse("file", text).expect("a good file");
        let access = |mode| Access {
            mode,
            group: Some(0),
        };
        let ports = config.ports.iter().map(|port| port.access);
        assert!(ports.eq([access(None), access(Some(0o606))]));
    }

    #[test]
    fn who_asks_for_a_group_and_cannot_have_it_is_told_so() {
        let access = Access {
            mode: None,
            group: Some(0),
        };
        let error = access
            .apply(Path::new("/nowhere/a.sock"))
            .expect_err("no socket");
        assert!(
            error
                .to_string()
                .starts_with("socket_group cannot be put in force: No such")
        );
    }

    #[test]
    fn an_error_has_its_line_and_key() {
        let long = "x".repeat(120);
        let text = format!(
            "[switch]\nsocket = \"/tmp/s.sock\"\nsocket_mode = \"660\"\nsocket_group = \"nobodys\"\n\
             policy = \"nopol.toml\"\n\
             [[port]]\nname = \"a\"\nvhost_user = \"/tmp/s.sock\"\n\
             [[port]]\nname = \"b\"\nshm = \"/tmp/{long}\"\nlisten = false\nsocket_mode = \"0660\"\n\
             [[port]]\nname = \"c\"\ntap = \"sg0\"\nsocket_group = \"0\"\n"
        );
        let problems = Config::parse("file", &text).expect_err("a bad file");
        let said = problems.to_string();
        for expected in [
            "file:3:15: switch.socket_mode: '660' is no mode of a socket",
            "file:4:16: switch.socket_group: /etc/group has no group 'nobodys'",
            "file:5:10: switch.policy: cannot read nopol.toml",
            "file:8:14: port[0].vhost_user: the switch has its control socket at /tmp/s.sock",
            "file:11:7: port[1].shm: the path of a socket has at most 107 bytes, not 125",
            "file:13:1: port[1].socket_mode",
            "file:17:1: port[2].socket_group",
        ] {
            assert!(said.contains(expected), "{expected} in:\n{said}");
        }
    }
}
