//! The tenant of an interface: a name that operators know, in place of interface names and indices.
//!
//! Sources, in this order: the operator's labels (`--label PATTERN=NAME`, `ip link set … alias`),
//! then the records of the software that made the interface: libvirt's domains, CNI's results,
//! Docker's containers, names of network namespaces. They are files that exist without the agent; a
//! file that cannot be read names nothing, and takes no name away.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow, ensure};
use glob::Pattern;
use netlink_packet_route::{
    RouteNetlinkMessage,
    nsid::{NsidAttribute, NsidMessage},
};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use serde_json::Value;

use crate::interfaces::{self, Interface};

/// Where names may come from that the operator did not write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sources {
    /// Everywhere.
    #[default]
    Auto,
    /// The interface's alias.
    Alias,
    /// Nowhere.
    None,
}

/// How interfaces get their tenants' names.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    explicit: Vec<(Pattern, String)>,
    sources: Sources,
}

/// A tenant's name, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The name.
    pub name: String,
    /// `label`, `alias`, `libvirt`, `cni`, `docker`, `netns`, or `interface` where nothing better
    /// is known.
    pub from: &'static str,
}

impl Label {
    /// Whether a name that came from there was read in a file of other software.
    pub fn is_recorded(from: &str) -> bool {
        ["libvirt", "cni", "docker", "netns"].contains(&from)
    }
}

impl Labels {
    /// From words: `auto`, `alias`, `none`, or `PATTERN=NAME`, of which the first that covers an
    /// interface decides.
    ///
    /// # Errors
    /// Names the word that is none of these.
    pub fn new<S: AsRef<str>>(words: &[S]) -> Result<Self> {
        let mut labels = Self::default();
        for word in words {
            let word = word.as_ref();
            match (word, word.split_once('=')) {
                ("auto", _) => labels.sources = Sources::Auto,
                ("alias", _) => labels.sources = Sources::Alias,
                ("none", _) => labels.sources = Sources::None,
                (_, Some((pattern, name))) => {
                    ensure!(!name.is_empty(), "label `{word}`: the name is empty");
                    let pattern = Pattern::new(pattern)
                        .map_err(|error| anyhow!("label `{word}`: {error}"))?;
                    labels.explicit.push((pattern, name.to_owned()));
                }
                _ => {
                    return Err(anyhow!(
                        "label `{word}`: write auto, alias, none, or PATTERN=NAME such as `veth1*=blue`"
                    ));
                }
            }
        }
        Ok(labels)
    }

    /// Looks at what may name interfaces of the calling thread's network namespace now.
    pub fn survey(&self) -> Survey<'_> {
        let found = match self.sources {
            Sources::Auto => Found::look(&Roots::default()),
            _ => Found::default(),
        };
        Survey {
            labels: self,
            found,
        }
    }
}

/// The sources of names for interfaces, at one moment.
#[derive(Debug)]
pub struct Survey<'a> {
    labels: &'a Labels,
    found: Found,
}

impl Survey<'_> {
    /// Whether a source that exists could not be read or understood: what it names is not known.
    pub fn is_partial(&self) -> bool {
        self.found.is_partial
    }

    /// The tenant of the interface.
    pub fn of(&self, interface: &Interface) -> Label {
        let mut explicit = self.labels.explicit.iter();
        if let Some((_, name)) = explicit.find(|(pattern, _)| pattern.matches(&interface.name)) {
            return label(name, "label");
        }
        let alias = interface.alias.as_ref().filter(|alias| !alias.is_empty());
        if let Some(alias) = alias.filter(|_| self.labels.sources != Sources::None) {
            return label(alias, "alias");
        }
        let by_interface = self.found.by_interface.get(&interface.name);
        let by_netns = || self.found.by_netns.get(&interface.netns_id?);
        by_interface
            .or_else(by_netns)
            .cloned()
            .unwrap_or_else(|| label(&interface.name, "interface"))
    }
}

fn label(name: &str, from: &'static str) -> Label {
    Label {
        name: name.to_owned(),
        from,
    }
}

/// Where the machinery leaves its files.
struct Roots {
    libvirt: PathBuf,
    cni: PathBuf,
    docker: PathBuf,
    netns: Vec<PathBuf>,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            libvirt: "/run/libvirt/qemu".into(),
            cni: "/var/lib/cni/results".into(),
            docker: "/var/lib/docker/containers".into(),
            netns: vec!["/run/netns".into(), "/run/docker/netns".into()],
        }
    }
}

#[derive(Debug, Default)]
struct Found {
    by_interface: BTreeMap<String, Label>,
    /// By the id of the namespace of the other end.
    by_netns: BTreeMap<i32, Label>,
    /// A file could not be read or understood; it may be being written.
    is_partial: bool,
}

impl Found {
    fn look(roots: &Roots) -> Self {
        let mut found = Self::default();
        let cni = found.files(&roots.cni);
        for text in found.texts(&cni, "") {
            let names = found.understood(cni_names(&text));
            found.by_interface.extend(names);
        }
        let libvirt = found.files(&roots.libvirt);
        for text in found.texts(&libvirt, "xml") {
            let names = found.understood(libvirt_names(&text));
            found.by_interface.extend(names);
        }
        let configs = found.files(&roots.docker).into_iter();
        let configs: Vec<PathBuf> = configs.map(|path| path.join("config.v2.json")).collect();
        let mut containers = BTreeMap::new();
        for text in found.texts(&configs, "json") {
            containers.extend(found.understood(docker_container(&text)));
        }
        let namespaces: Vec<PathBuf> = roots.netns.iter().flat_map(|it| found.files(it)).collect();
        for path in namespaces {
            let id = netns_id(&path);
            found.is_partial |= id.is_err();
            let Ok(Some(id)) = id else { continue };
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let label = match containers.get(name.as_ref()) {
                Some(container) => label(container, "docker"),
                None => label(&name, "netns"),
            };
            found.by_netns.entry(id).or_insert(label);
        }
        found
    }

    /// Texts of those of the files that have this extension, empty = any. What is no UTF-8 in them
    /// is replaced.
    fn texts(&mut self, paths: &[PathBuf], extension: &str) -> Vec<String> {
        let wanted = |path: &&PathBuf| {
            extension.is_empty() || path.extension().is_some_and(|found| found == extension)
        };
        let mut texts = Vec::new();
        for path in paths.iter().filter(wanted) {
            match fs::read(path) {
                Ok(bytes) => texts.push(String::from_utf8_lossy(&bytes).into_owned()),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => self.is_partial = true,
            }
        }
        texts
    }

    /// The paths in a directory, sorted; none where there is no such directory.
    fn files(&mut self, directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.unwrap_or_else(|error| {
            self.is_partial |= error.kind() != ErrorKind::NotFound;
            Vec::new()
        });
        let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        paths.sort();
        paths
    }

    /// What was found in a file, if it has the form that it should have.
    fn understood<T: Default>(&mut self, read: Option<T>) -> T {
        self.is_partial |= read.is_none();
        read.unwrap_or_default()
    }
}

/// Interfaces of a libvirt domain by its status file; `None`: it has another form.
fn libvirt_names(xml: &str) -> Option<Vec<(String, Label)>> {
    let document = roxmltree::Document::parse(xml).ok()?;
    let mut nodes = document.descendants();
    let domain = nodes.find(|node| node.has_tag_name("domain"))?;
    let mut children = domain.children();
    let name = children.find(|node| node.has_tag_name("name"));
    let name = name.and_then(|node| node.text())?;
    let interfaces = domain
        .descendants()
        .filter(|node| node.has_tag_name("interface"));
    let targets = interfaces
        .flat_map(|node| node.children())
        .filter(|node| node.has_tag_name("target"));
    let named = targets
        .filter_map(|target| Some((target.attribute("dev")?.to_owned(), label(name, "libvirt"))));
    Some(named.collect())
}

/// Host sides of a container's interfaces by a cached result of CNI: those that are in no sandbox.
/// `None`: it has another form.
fn cni_names(json: &str) -> Option<Vec<(String, Label)>> {
    let cached = serde_json::from_str::<Value>(json).ok()?;
    let Some(name) = cni_container(&cached) else {
        return Some(Vec::new());
    };
    let interfaces = cached["result"]["interfaces"].as_array();
    let host_sides = interfaces.into_iter().flatten().filter(|interface| {
        let sandbox = interface["sandbox"].as_str().unwrap_or_default();
        sandbox.is_empty()
    });
    let named = host_sides.filter_map(|interface| {
        let interface = interface["name"].as_str()?.to_owned();
        Some((interface, label(&name, "cni")))
    });
    Some(named.collect())
}

/// `NAMESPACE/POD` under Kubernetes, else the container's id, cut as people write it.
fn cni_container(cached: &Value) -> Option<String> {
    let arguments = cached["cniArgs"].as_array().into_iter().flatten();
    let arguments: BTreeMap<&str, &str> = arguments
        .filter_map(|pair| Some((pair[0].as_str()?, pair[1].as_str()?)))
        .collect();
    let pod = (
        arguments.get("K8S_POD_NAMESPACE"),
        arguments.get("K8S_POD_NAME"),
    );
    if let (Some(namespace), Some(pod)) = pod {
        return Some(format!("{namespace}/{pod}"));
    }
    let id = cached["containerId"].as_str()?;
    Some(id.chars().take(12).collect())
}

/// The name of a sandbox under /run/docker/netns, and that of its container; empty if it has none.
/// `None`: the file has another form.
fn docker_container(json: &str) -> Option<Vec<(String, String)>> {
    let config: Value = serde_json::from_str(json).ok()?;
    let sandbox = config["NetworkSettings"]["SandboxKey"].as_str();
    let sandbox = sandbox.and_then(|path| Path::new(path).file_name()?.to_str());
    let name = config["Name"].as_str().unwrap_or_default();
    let name = name.trim_start_matches('/');
    let named = sandbox.filter(|_| !name.is_empty());
    Some(Vec::from_iter(
        named.map(|sandbox| (sandbox.to_owned(), name.to_owned())),
    ))
}

/// The id that the calling thread's network namespace has for the one behind `path`; `None` without
/// one, or where `path` is no namespace.
///
/// # Errors
/// It cannot be opened, or the kernel cannot be asked.
fn netns_id(path: &Path) -> Result<Option<i32>> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // A name whose namespace is not mounted (yet) is a file like others.
    if fstatfs(&file)?.filesystem_type() != NSFS_MAGIC {
        return Ok(None);
    }
    let mut message = NsidMessage::default();
    message
        .attributes
        .push(NsidAttribute::Fd(u32::try_from(file.as_raw_fd())?));
    let answer = interfaces::ask(RouteNetlinkMessage::GetNsId(message))?;
    let RouteNetlinkMessage::NewNsId(answer) = answer else {
        return Ok(None);
    };
    let mut ids = answer
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            NsidAttribute::Id(id) => Some(*id),
            _ => None,
        });
    Ok(ids.next().filter(|id| *id >= 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, alias: Option<&str>, netns_id: Option<i32>) -> Interface {
        Interface {
            name: name.into(),
            alias: alias.map(str::to_owned),
            netns_id,
            ..Interface::nameless(7)
        }
    }

    fn of(words: &[&str], interface: &Interface) -> (String, &'static str) {
        let labels = Labels::new(words).unwrap();
        let mut survey = labels.survey();
        survey.found = Found::default();
        if labels.sources == Sources::Auto {
            let libvirt = ("vnet0".to_owned(), label("vm1", "libvirt"));
            survey.found.by_interface.extend([libvirt]);
            survey.found.by_netns.insert(3, label("web", "docker"));
        }
        let label = survey.of(interface);
        (label.name, label.from)
    }

    #[test]
    fn labels_and_aliases_come_before_other_sources() {
        let vnet = interface("vnet0", Some("customer 7"), None);
        assert_eq!(of(&[], &vnet), ("customer 7".into(), "alias"));
        assert_eq!(of(&["none"], &vnet), ("vnet0".into(), "interface"));
        let words = ["vnet?=first", "vnet0=second"];
        assert_eq!(of(&words, &vnet), ("first".into(), "label"));
        let silent = interface("vnet0", None, None);
        assert_eq!(of(&[], &silent), ("vm1".into(), "libvirt"));
        assert_eq!(of(&["alias"], &silent), ("vnet0".into(), "interface"));
        let veth = interface("veth7", Some(""), Some(3));
        assert_eq!(of(&["auto"], &veth), ("web".into(), "docker"));
        assert_eq!(of(&["tap*=x"], &veth), ("web".into(), "docker"));
    }

    #[test]
    fn words_that_are_no_labels_are_named() {
        for word in ["veth0", "veth[=a", "veth0="] {
            let error = Labels::new(&[word]).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn libvirt_says_whose_interfaces_are() {
        let xml = "<domstatus state='running' pid='7'><domain type='kvm' id='1'><name>vm1</name>\
                   <devices><disk><target dev='vda'/></disk>\
                   <interface type='bridge'><source bridge='br0'/><target dev='vnet0'/></interface>\
                   <interface type='network'><target dev='vnet1'/></interface></devices></domain></domstatus>";
        let names = libvirt_names(xml).unwrap();
        let devices: Vec<&str> = names.iter().map(|(device, _)| device.as_str()).collect();
        assert_eq!(devices, ["vnet0", "vnet1"]);
        assert!(names.iter().all(|(_, label)| label.name == "vm1"));
        assert!(libvirt_names("<domain>").is_none());
    }

    #[test]
    fn cni_says_whose_interfaces_are() {
        let json = r#"{"kind":"cniCacheV1","containerId":"0123456789abcdef","ifName":"eth0",
            "cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME","web-0"]],
            "result":{"interfaces":[{"name":"cali7"},{"name":"eth0","sandbox":"/run/netns/cni-1"}]}}"#;
        assert_eq!(
            cni_names(json).unwrap(),
            [("cali7".into(), label("shop/web-0", "cni"))]
        );
        let plain = json.replace("K8S_POD_NAME", "X");
        assert_eq!(cni_names(&plain).unwrap()[0].1.name, "0123456789ab");
        assert!(cni_names("{}").unwrap().is_empty() && cni_names("[").is_none());
    }

    #[test]
    fn docker_says_whose_sandbox_it_is() {
        let json =
            r#"{"Name":"/web","NetworkSettings":{"SandboxKey":"/var/run/docker/netns/ab12"}}"#;
        let named = vec![("ab12".into(), "web".into())];
        assert_eq!(docker_container(json), Some(named));
        let host = r#"{"Name":"/web","NetworkSettings":{"SandboxKey":""}}"#;
        assert_eq!(docker_container(host), Some(Vec::new()));
        assert_eq!(docker_container(&json[..20]), None);
    }

    #[test]
    fn a_file_that_is_being_written_is_not_taken_for_absent() {
        let root = std::env::temp_dir().join(format!("sga-{}-labels", std::process::id()));
        fs::create_dir_all(root.join("libvirt")).unwrap();
        let file = root.join("libvirt/vm1.xml");
        let xml = "<domstatus><domain><name>M\u{fc}ller</name>\
                   <interface><target dev='vnet0'/></interface></domain></domstatus>";
        let roots = || Roots {
            libvirt: root.join("libvirt"),
            cni: root.join("cni"),
            docker: root.join("docker"),
            netns: Vec::new(),
        };
        // In Latin-1, as old tools write it.
        let latin: Vec<u8> = xml.chars().map(|c| c as u8).collect();
        fs::write(&file, latin).unwrap();
        let found = Found::look(&roots());
        let name = &found.by_interface["vnet0"].name;
        assert_eq!((name.as_str(), found.is_partial), ("M\u{fffd}ller", false));
        fs::write(&file, &xml[..40]).unwrap();
        let found = Found::look(&roots());
        assert!(found.by_interface.is_empty() && found.is_partial);
        // A directory that cannot be listed is not one without files.
        fs::write(root.join("cni"), "").unwrap();
        fs::write(
            &file,
            "<domstatus><domain><name>a</name></domain></domstatus>",
        )
        .unwrap();
        assert!(Found::look(&roots()).is_partial);
        fs::remove_file(root.join("cni")).unwrap();
        assert!(!Found::look(&roots()).is_partial);
        fs::remove_file(&file).unwrap();
        assert!(!Found::look(&roots()).is_partial);
        fs::remove_dir_all(&root).unwrap();
    }
}
