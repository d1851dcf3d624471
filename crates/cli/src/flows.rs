//! `sluicegate flows`: what the running agent knows of each flow.

use std::{os::fd::AsFd, path::PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sluicegate_agent::{
    FlowRecord, Names,
    bpffs::{self, Pins},
    interfaces,
    meter::Snapshot,
    netns::{self, NetNs},
    state::{self, State},
};

use sluicegate_dataplane::config;

use crate::{
    columns::{Align, table},
    flowtable::{Column, Filter, Order, Row},
    output::{self, Failure},
    source::Source,
};

/// Show the flows that enforcement knows: in the kernel, and in the userspace switch.
///
/// Reads the kernel's pinned state, so it also works while no agent runs and enforcement goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sluicegate flows --sort srtt --limit 10
  sluicegate flows --filter '10.0.3. mode=watch'
  sluicegate flows --filter 'why=observe allowed<64K'")]
pub struct Args {
    #[command(flatten)]
    choice: Choice,

    /// Show at most so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// One JSON document: `flows` and `counters`
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

/// Which flows, in which order.
#[derive(Clone, Debug, clap::Args)]
pub struct Choice {
    /// Only flows for which all words hold: text in any name, `column=text`, `column~text`,
    /// `column<number` (also `<=`, `=`, `>=`, `>`; K, M, G), `!word`. Columns are those of --sort
    #[arg(long, value_name = "WORDS", default_value = "")]
    pub filter: Filter,

    /// Only flows of this tenant
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,

    /// Only flows of this interface
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,

    /// Sort by this column: numbers from the largest down, names from a to z
    #[arg(long, value_name = "COLUMN", value_enum, hide_possible_values = false)]
    pub sort: Option<Column>,

    /// Sort the other way round
    #[arg(long, short)]
    pub reverse: bool,
}

impl Choice {
    /// All conditions in one.
    pub fn filter(&self) -> Filter {
        let mut filter = self.filter.clone();
        for (column, wanted) in [
            (Column::Tenant, &self.tenant),
            (Column::Interface, &self.interface),
        ] {
            if let Some(wanted) = wanted {
                filter = filter.and_is(column, wanted);
            }
        }
        filter
    }

    /// The order asked for, or by `default`.
    pub fn order(&self, default: Column) -> Order {
        let natural = Order::natural(self.sort.unwrap_or(default));
        Order {
            descending: natural.descending != self.reverse,
            ..natural
        }
    }
}

/// The selection of flows by place.
#[derive(Clone, Debug, clap::Args)]
pub struct Place {
    /// Network namespace, as `ip netns` names it [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub netns: Option<String>,

    /// Ask the userspace switch alone, at this control socket [default: also the one at
    /// /run/sluicegate/switch.sock, if it runs with a policy]
    #[arg(
        long,
        value_name = "SOCKET",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = config::SOCKET,
        conflicts_with = "netns"
    )]
    pub switch: Option<PathBuf>,

    /// Where the bpffs is
    #[arg(long, value_name = "DIR", default_value = bpffs::DEFAULT)]
    bpffs: PathBuf,

    /// Where the agent says what interfaces and rules are called
    #[arg(long, value_name = "DIR", default_value = state::RUN_DIR)]
    pub run_dir: PathBuf,
}

impl Place {
    /// Finds it, and where its pins are or would be.
    ///
    /// # Errors
    /// There is no such namespace.
    pub fn select(&self) -> Result<(NetNs, Pins)> {
        let netns = NetNs::select(self.netns.as_deref())?;
        let pins = Pins::new(&self.bpffs, netns.name());
        Ok((netns, pins))
    }

    /// Finds it, with what is pinned there.
    ///
    /// # Errors
    /// There is no such namespace, or nothing is pinned for it.
    pub fn find(&self) -> Result<(NetNs, Pins)> {
        let (netns, pins) = self.select()?;
        ensure!(
            pins.exist(),
            "nothing is enforced in network namespace {}: no pins at {} (is the agent running there, with this \
             --bpffs, and are you root?)",
            netns.name(),
            pins.root().display()
        );
        Ok((netns, pins))
    }

    /// Names of interfaces, tenants and rules there.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn names(&self, netns: &NetNs) -> Result<Names> {
        let interfaces = netns::within(netns.as_fd(), interfaces::names)?;
        Ok(self.state(netns).names(interfaces))
    }

    /// The last state of the agent there; empty if there is none that can be read.
    fn state(&self, netns: &NetNs) -> State {
        let state = state::read(&self.run_dir, netns.name()).unwrap_or_else(|error| {
            output::say(&format!("tenants and rules have no names: {error:#}"));
            None
        });
        state.unwrap_or_default()
    }
}

/// Prints the flows.
pub fn run(args: &Args) -> Result<(), Failure> {
    output::print(&shown(args)?)
}

fn shown(args: &Args) -> Result<String> {
    let source = Source::find(&args.place)?;
    let notes = source
        .netns()
        .map(|netns| args.place.state(netns).remarks());
    let notes = notes.unwrap_or_default();
    let Snapshot {
        flows, counters, ..
    } = source.look()?;
    let all = flows.len();
    let rows = choose(flows, args);
    if !args.json {
        let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
        return Ok(text(&rows, all) + &notes);
    }
    let flows: Vec<&FlowRecord> = rows.iter().map(|row| &row.flow).collect();
    let document =
        json!({ "netns": source.name(), "flows": flows, "counters": counters, "notes": notes });
    serde_json::to_string_pretty(&document)
        .map(|text| text + "\n")
        .context("writing JSON")
}

fn choose(flows: Vec<FlowRecord>, args: &Args) -> Vec<Row> {
    let filter = args.choice.filter();
    let mut rows: Vec<Row> = flows
        .into_iter()
        .map(|flow| Row { flow, rates: None })
        .filter(|row| filter.holds(row))
        .collect();
    let mut indices: Vec<usize> = (0..rows.len()).collect();
    args.choice
        .order(Column::Interface)
        .sort(&rows, &mut indices);
    indices.truncate(args.limit.unwrap_or(usize::MAX));
    let mut taken: Vec<Option<Row>> = rows.drain(..).map(Some).collect();
    indices
        .into_iter()
        .filter_map(|index| taken[index].take())
        .collect()
}

fn text(rows: &[Row], all: usize) -> String {
    let columns = with_tenants(&Column::LISTED, rows);
    let count = if rows.len() == all {
        format!("{all} flows\n")
    } else {
        format!("{} of {all} flows\n", rows.len())
    };
    lines(&columns, rows) + &count
}

/// Without the column of tenants, or that of interfaces, where both say the same.
pub fn with_tenants(columns: &[Column], rows: &[Row]) -> Vec<Column> {
    let labelled = rows.iter().any(|row| row.flow.tenant != row.flow.interface);
    let both = columns.contains(&Column::Interface);
    columns
        .iter()
        .copied()
        .filter(|column| *column != Column::Tenant || labelled || !both)
        .collect()
}

/// A table of these columns.
pub fn lines(columns: &[Column], rows: &[Row]) -> String {
    let head: Vec<(&str, Align)> = columns
        .iter()
        .map(|column| (column.title(), column.align()))
        .collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| columns.iter().map(|column| column.cell(row)).collect())
        .collect();
    table(&head, &cells)
}
