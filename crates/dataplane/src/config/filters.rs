//! Which frames a port may send, as the configuration says.

use std::net::IpAddr;

use sluicegate_config::{
    document::Value,
    problem::Complaint,
    table::{Item, Table, nearest},
};
use sluicegate_vswitch::{
    filter::{CHECKED, Filter, JUMBO_LLC, TYPE_MIN, is_tag},
    learning::Mac,
    reserved::{self, PAUSE, Reserved},
};

const MAC_ADVICE: &str = "write six bytes, such as \"52:54:00:12:34:56\"";
const TYPE_ADVICE: &str = "write a number, such as 0x88cc";
const MAC_CONTROL: u16 = 0x8808;

/// A port with source filters is a host's, unless the file says that it is a router's; one without
/// them may be anybody's.
pub(super) fn read_filter(table: &Table<'_>) -> Filter {
    let macs = list(table, "macs", parse_mac);
    let prefixes = list(table, "addresses", parse_prefix);
    let types = list_of(table, "ethertypes", read_type);
    if prefixes.is_empty() {
        table.refuse(
            "ethertypes",
            "only a port with addresses sends none but ARP, IPv4 and IPv6; others may send any type",
        );
    }
    let has_filters = !macs.is_empty() || !prefixes.is_empty();
    let is_router = table.boolean("router");
    if is_router == Some(true) && !has_filters {
        table.refuse(
            "router",
            "a port without macs and addresses may send what routers send anyway; with \
             router = false it may not",
        );
    }
    Filter {
        macs,
        prefixes,
        types,
        is_host: !is_router.unwrap_or(!has_filters),
    }
}

fn list<T>(
    table: &Table<'_>,
    key: &'static str,
    parse: impl Fn(&str) -> Result<T, Complaint>,
) -> Vec<T> {
    list_of(table, key, |item| item.parse(&parse))
}

fn list_of<T>(
    table: &Table<'_>,
    key: &'static str,
    read: impl Fn(&Item<'_>) -> Option<T>,
) -> Vec<T> {
    let items = table.get(key).and_then(|item| item.list());
    items.unwrap_or_default().iter().filter_map(read).collect()
}

/// A type of Ethernet, as a number or as text.
fn read_type(item: &Item<'_>) -> Option<u16> {
    if let Value::Integer(number) = item.node().value {
        return complained(item, check_type(number));
    }
    item.parse(|text| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let number = i64::from_str_radix(digits, 16);
        let reason = format!("'{text}' is no type of Ethernet");
        check_type(number.map_err(|_| Complaint::new(reason, TYPE_ADVICE))?)
    })
}

fn check_type(number: i64) -> Result<u16, Complaint> {
    let kind = u16::try_from(number).ok().filter(|&kind| kind >= TYPE_MIN);
    let Some(kind) = kind else {
        let reason = format!("{number:#x} is no type of Ethernet: they are 0x600 to 0xffff");
        return Err(Complaint::new(reason, TYPE_ADVICE));
    };
    let why = match kind {
        _ if CHECKED.contains(&kind) => "passes by itself, with its senders checked",
        _ if is_tag(kind) => "is a tag, and what is behind it would not be checked",
        MAC_CONTROL => "is MAC control, which no switch relays",
        JUMBO_LLC => "is LLC, and what is in it would not be checked",
        _ => return Ok(kind),
    };
    let reason = format!("{kind:#06x} {why}");
    Err(Complaint::new(reason, "leave it out"))
}

/// Says of an item what is wrong with it.
fn complained<T>(item: &Item<'_>, read: Result<T, Complaint>) -> Option<T> {
    match read {
        Ok(value) => Some(value),
        Err(complaint) => {
            item.complain(complaint.reason, complaint.advice);
            None
        }
    }
}

/// Which frames for the neighbour on a link the switch relays: none, unless the file says so.
pub(super) fn read_reserved(table: &Table<'_>) -> Reserved {
    let Some(item) = table.get("relay_reserved") else {
        return Reserved::default();
    };
    match &item.node().value {
        Value::Boolean(true) => Reserved::RELAYED,
        Value::Boolean(false) => Reserved::default(),
        Value::List(_) => {
            let named = list(table, "relay_reserved", parse_reserved);
            named
                .into_iter()
                .fold(Reserved::default(), Reserved::relaying)
        }
        _ => {
            let advice = "give false, true, or a list such as [\"lldp\", \"01:80:c2:00:00:03\"]";
            item.complain("says neither whether nor which", advice);
            Reserved::default()
        }
    }
}

/// An address of the block that is not relayed: its number.
fn parse_reserved(text: &str) -> Result<u8, Complaint> {
    let named = reserved::NAMES.iter().find(|(name, _)| *name == text);
    let address = || read_mac(text).ok().and_then(reserved::number);
    match named.map(|&(_, number)| number).or_else(address) {
        Some(PAUSE) => Err(Complaint::new(
            "pauses are for the neighbour on a link alone",
            "leave it out; a cable has flow control with pfc = true",
        )),
        Some(number) => Ok(number),
        None => {
            let names = reserved::NAMES.map(|(name, _)| name);
            let advice = format!(
                "write one of {}, or an address from 01:80:c2:00:00:00 to 01:80:c2:00:00:0f{}",
                names.join(", "),
                nearest(text, &names)
            );
            let reason = format!("'{text}' is no reserved address");
            Err(Complaint::new(reason, advice))
        }
    }
}

fn parse_mac(text: &str) -> Result<Mac, Complaint> {
    let mac = read_mac(text)?;
    if mac[0] & 1 != 0 {
        let reason = format!("'{text}' is not the address of one adapter");
        return Err(Complaint::new(reason, MAC_ADVICE));
    }
    Ok(mac)
}

/// An Ethernet address that people have written.
///
/// # Errors
/// It is none.
pub fn read_mac(text: &str) -> Result<Mac, Complaint> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<_> = bytes.filter_map(Result::ok).collect();
    let mac = bytes.try_into().ok().filter(|_| text.len() == 17);
    mac.ok_or_else(|| Complaint::new(format!("'{text}' is no Ethernet address"), MAC_ADVICE))
}

fn parse_prefix(text: &str) -> Result<(IpAddr, u8), Complaint> {
    let complaint = || {
        let advice = "write an address or a prefix, such as \"10.0.0.1\" or \"2001:db8::/64\"";
        Complaint::new(format!("'{text}' is no prefix"), advice)
    };
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| complaint())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits: u8 = bits.map_or(Ok(most), str::parse).map_err(|_| complaint())?;
    if bits > most {
        return Err(complaint());
    }
    Ok((address, bits))
}

/// An Ethernet address as people write it.
pub fn show_mac(mac: Mac) -> String {
    let bytes: Vec<_> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, STALL_LIMIT_NS};

    fn port(keys: &str) -> Result<Filter, String> {
        let text = format!("[[port]]\nname = \"a\"\ntap = \"sg0\"\n{keys}\n");
        let config = Config::parse("file", &text).map_err(|problems| problems.to_string())?;
        Ok(config.ports[0].filter.clone())
    }

    fn switch(keys: &str) -> Result<Config, String> {
        let read = Config::parse("file", &format!("[switch]\n{keys}\n"));
        read.map_err(|problems| problems.to_string())
    }

    #[test]
    fn types_are_numbers_that_can_be_allowed() {
        let addresses = "addresses = [\"10.0.0.1\"]";
        let keys = format!("{addresses}\nethertypes = [0x8863, \"0x8864\", 35020]");
        let filter = port(&keys).expect("a good file");
        assert_eq!(filter.types, [0x8863, 0x8864, 0x88cc]);
        for (kind, expected) in [
            ("0x0800", "0x0800 passes by itself"),
            ("0x8100", "0x8100 is a tag"),
            ("0x8808", "MAC control, which no switch relays"),
            ("0x8870", "0x8870 is LLC"),
            ("0x05ff", "0x5ff is no type of Ethernet"),
            ("70000", "is no type of Ethernet"),
            ("\"lldp\"", "'lldp' is no type of Ethernet"),
        ] {
            let said = port(&format!("{addresses}\nethertypes = [{kind}]")).expect_err(kind);
            assert!(said.contains("file:5:15: port[0].ethertypes"), "{said}");
            assert!(said.contains(expected), "{said}");
        }
        let said = port("macs = [\"52:54:00:00:00:01\"]\nethertypes = [0x8863]");
        let said = said.expect_err("no addresses");
        assert!(said.contains("only a port with addresses"), "{said}");
    }

    #[test]
    fn frames_for_the_neighbour_are_relayed_only_if_the_file_says_so() {
        let read = |keys: &str| switch(keys).map(|config| config.choice.reserved);
        assert_eq!(read("").expect("good"), Reserved::default());
        assert_eq!(
            read("relay_reserved = false").expect("good"),
            Reserved::default()
        );
        assert_eq!(
            read("relay_reserved = true").expect("good"),
            Reserved::RELAYED
        );
        let some = read("relay_reserved = [\"lldp\", \"01:80:c2:00:00:03\"]");
        assert_eq!(some.expect("good").relayed(), 1 << 14 | 1 << 3);
        for (value, expected) in [
            ("[\"lldb\"]", "did you mean \"lldp\"?"),
            ("[\"01:80:c2:00:00:01\"]", "pauses are for the neighbour"),
            ("[\"52:54:00:00:00:01\"]", "is no reserved address"),
            ("3", "says neither whether nor which"),
        ] {
            let said = read(&format!("relay_reserved = {value}")).expect_err(value);
            assert!(said.contains("file:2:"), "{said}");
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn a_receiver_may_take_nothing_for_a_while_or_for_ever() {
        let read = |keys: &str| switch(keys).map(|config| config.choice.stall_limit_ns);
        assert_eq!(read("").expect("good"), Some(STALL_LIMIT_NS));
        assert_eq!(read("stall_limit = \"never\"").expect("good"), None);
        let said = read("stall_limit = \"nver\"").expect_err("no time");
        assert!(said.contains("or \"never\""), "{said}");
    }
}
