//! The effects of keys: the view, the order, the selection of flows. No input, no output.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sluicegate_agent::{
    FlowRecord,
    meter::{FlowId, Snapshot},
};

use super::model::{Model, Tenant};
use crate::flowtable::{Column, Filter, Order};

/// The subject of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// A row for each flow.
    #[default]
    Flows,
    /// A row for each tenant.
    Tenants,
    /// A row for each counter of the programs.
    Counters,
}

impl View {
    const ALL: [Self; 3] = [Self::Flows, Self::Tenants, Self::Counters];

    fn next(self, steps: usize) -> Self {
        let at = Self::ALL.iter().position(|view| *view == self);
        Self::ALL[(at.unwrap_or(0) + steps) % Self::ALL.len()]
    }
}

/// A filter that is being typed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Typing {
    /// So far.
    pub text: String,
    /// An error in it.
    pub problem: Option<String>,
    before: String,
}

/// See the module.
#[derive(Debug)]
pub struct App {
    /// All that is known.
    pub model: Model,
    /// The subject of the screen.
    pub view: View,
    /// The order of flows.
    pub order: Order,
    /// The filter as typed.
    pub filter_text: String,
    /// Given with the command, and never changed by keys.
    given: Filter,
    filter: Filter,
    /// A filter is being typed.
    pub typing: Option<Typing>,
    /// New data is not shown.
    pub paused: bool,
    /// The help is shown.
    pub help: bool,
    /// Rows of the model that are shown, in their order.
    pub shown: Vec<usize>,
    /// Position in what is shown of the row that is selected.
    pub selected: usize,
    /// First row on the screen.
    pub offset: usize,
    /// Rows that fit on the screen, as drawn last.
    pub page: usize,
    chosen: Option<FlowId>,
    /// Why the last look failed.
    pub trouble: Option<String>,
}

impl App {
    /// Nothing seen yet.
    pub fn new(given: Filter, order: Order) -> Self {
        Self {
            model: Model::default(),
            view: View::default(),
            order,
            filter_text: String::new(),
            given,
            filter: Filter::default(),
            typing: None,
            paused: false,
            help: false,
            shown: Vec::new(),
            selected: 0,
            offset: 0,
            page: 1,
            chosen: None,
            trouble: None,
        }
    }

    /// Takes in another look, unless paused.
    pub fn look(&mut self, snapshot: Result<Snapshot, String>) {
        if self.paused {
            return;
        }
        match snapshot {
            Ok(snapshot) => {
                self.trouble = None;
                self.model.update(snapshot);
                self.arrange();
            }
            Err(trouble) => self.trouble = Some(trouble),
        }
    }

    /// The tenant that is selected.
    pub fn tenant(&self) -> Option<&Tenant> {
        match self.view {
            View::Tenants => self.model.tenants.get(self.selected),
            _ => None,
        }
    }

    /// The flow that the user has selected.
    pub fn chosen_flow(&self) -> Option<&FlowRecord> {
        let index = self.chosen.and(self.shown.get(self.selected))?;
        Some(&self.model.rows[*index].flow)
    }

    /// The row on the screen that is selected. No flow is selected while the plots show all flows.
    pub fn highlighted(&self) -> Option<usize> {
        match (self.view, &self.chosen) {
            (View::Flows, None) => None,
            _ => self.selected.checked_sub(self.offset),
        }
    }

    /// Rows of this view without filters.
    pub fn all_rows(&self) -> usize {
        match self.view {
            View::Flows => self.model.rows.len(),
            View::Tenants | View::Counters => self.rows(),
        }
    }

    /// Takes a key; true = the end.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return true;
        }
        if self.typing.is_some() {
            self.type_key(key.code, control);
            return false;
        }
        if self.help {
            self.help = false;
            return key.code == KeyCode::Char('q');
        }
        self.command(key.code)
    }

    fn command(&mut self, code: KeyCode) -> bool {
        match code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.help = true,
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Tab => self.turn_to(self.view.next(1)),
            KeyCode::BackTab => self.turn_to(self.view.next(2)),
            KeyCode::Char('f') => self.turn_to(View::Flows),
            KeyCode::Char('t') => self.turn_to(View::Tenants),
            KeyCode::Char('c') => self.turn_to(View::Counters),
            KeyCode::Char('/') => {
                self.turn_to(View::Flows);
                self.typing = Some(Typing {
                    text: self.filter_text.clone(),
                    problem: None,
                    before: self.filter_text.clone(),
                });
            }
            KeyCode::Esc => {
                self.chosen = None;
                self.set_filter("");
            }
            KeyCode::Left | KeyCode::Char('<') => self.sort_beside(Column::WATCHED.len() - 1),
            KeyCode::Right | KeyCode::Char('>') => self.sort_beside(1),
            KeyCode::Char('r') => {
                self.order.descending = !self.order.descending;
                self.arrange();
            }
            KeyCode::Enter => self.enter(),
            other => self.travel(other),
        }
        false
    }

    fn travel(&mut self, code: KeyCode) {
        let last = self.rows().saturating_sub(1);
        let to = match code {
            KeyCode::Up | KeyCode::Char('k') => self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected + 1,
            KeyCode::PageUp => self.selected.saturating_sub(self.page),
            KeyCode::PageDown => self.selected + self.page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => return,
        };
        self.selected = to.min(last);
        // At the top no flow is followed: the selection stays on the first row.
        let top = matches!(code, KeyCode::Home | KeyCode::Char('g'));
        self.chosen = self.flow_at(self.selected).filter(|_| !top);
    }

    /// Of a tenant, its flows.
    fn enter(&mut self) {
        if let Some(tenant) = self.tenant() {
            let filter = format!("tenant={}", tenant.tenant);
            self.turn_to(View::Flows);
            self.set_filter(&filter);
        }
    }

    fn type_key(&mut self, code: KeyCode, control: bool) {
        let Some(mut typing) = self.typing.take() else {
            return;
        };
        match code {
            KeyCode::Enter if typing.problem.is_none() => return,
            KeyCode::Esc => {
                self.set_filter(&typing.before);
                return;
            }
            KeyCode::Char('u') if control => typing.text.clear(),
            KeyCode::Char(letter) if !control => typing.text.push(letter),
            KeyCode::Backspace => {
                typing.text.pop();
            }
            _ => {}
        }
        // A text with an error may only be unfinished: the last good filter holds until then.
        typing.problem = match typing.text.parse::<Filter>() {
            Ok(_) => {
                self.set_filter(&typing.text);
                None
            }
            Err(problem) => Some(problem.to_string()),
        };
        self.typing = Some(typing);
    }

    fn set_filter(&mut self, text: &str) {
        if let Ok(filter) = text.parse() {
            self.filter = filter;
            self.filter_text = text.to_owned();
            self.arrange();
        }
    }

    fn sort_beside(&mut self, steps: usize) {
        let columns = Column::WATCHED;
        let at = columns
            .iter()
            .position(|column| *column == self.order.column)
            .map_or(0, |at| (at + steps) % columns.len());
        self.order = Order::natural(columns[at]);
        self.arrange();
    }

    fn turn_to(&mut self, view: View) {
        if self.view != view {
            self.view = view;
            self.selected = 0;
            self.offset = 0;
            self.chosen = None;
        }
    }

    /// Rows of this view.
    pub fn rows(&self) -> usize {
        match self.view {
            View::Flows => self.shown.len(),
            View::Tenants => self.model.tenants.len(),
            View::Counters => self.model.counters.len(),
        }
    }

    fn flow_at(&self, position: usize) -> Option<FlowId> {
        match self.view {
            View::Flows => self.shown.get(position),
            _ => None,
        }
        .map(|index| FlowId::of(&self.model.rows[*index].flow))
    }

    /// Filters and sorts; the selection stays with its flow while that is shown.
    fn arrange(&mut self) {
        let rows = &self.model.rows;
        self.shown = (0..rows.len())
            .filter(|index| self.given.holds(&rows[*index]) && self.filter.holds(&rows[*index]))
            .collect();
        self.order.sort(rows, &mut self.shown);
        if let Some(chosen) = &self.chosen {
            let at = self
                .shown
                .iter()
                .position(|index| FlowId::of(&rows[*index].flow) == *chosen);
            match at {
                Some(at) => self.selected = at,
                None => self.chosen = None,
            }
        }
        self.selected = self.selected.min(self.rows().saturating_sub(1));
    }

    /// Brings the selection into the `page` rows that the screen has.
    pub fn scroll(&mut self, page: usize) {
        self.page = page.max(1);
        let last = self.rows().saturating_sub(self.page);
        self.offset = self
            .offset
            .clamp((self.selected + 1).saturating_sub(self.page), self.selected)
            .min(last);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{flowtable::tests::flow, top::model::tests::look};

    pub(crate) fn app() -> App {
        App::new(Filter::default(), Order::natural(Column::Sending))
    }

    fn flows(amounts: &[(u16, u64)]) -> Vec<FlowRecord> {
        let of = |&(port, acked_bytes): &(u16, u64)| FlowRecord {
            acked_bytes,
            ..flow(if port % 2 == 0 { "veth-a" } else { "veth-b" }, port)
        };
        amounts.iter().map(of).collect()
    }

    /// Ports 1 to 4, the higher the faster.
    pub(crate) fn running() -> App {
        let mut app = app();
        app.look(Ok(look(1, flows(&[(1, 0), (2, 0), (3, 0), (4, 0)]))));
        app.look(Ok(look(2, flows(&[(1, 1), (2, 2), (3, 3), (4, 4)]))));
        app
    }

    pub(crate) fn press(app: &mut App, code: KeyCode) -> bool {
        app.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    pub(crate) fn write(app: &mut App, text: &str) {
        for letter in text.chars() {
            press(app, KeyCode::Char(letter));
        }
    }

    fn ports(app: &App) -> Vec<u16> {
        let rows = app.shown.iter().map(|index| &app.model.rows[*index]);
        rows.map(|row| row.flow.local.port()).collect()
    }

    #[test]
    fn the_selection_follows_its_flow() {
        let mut app = running();
        assert_eq!(ports(&app), [4, 3, 2, 1]);
        assert_eq!(app.highlighted(), None);
        press(&mut app, KeyCode::Down);
        app.scroll(4);
        assert_eq!(app.highlighted(), Some(1));
        app.look(Ok(look(3, flows(&[(1, 100), (2, 2), (3, 3), (4, 5)]))));
        assert_eq!(ports(&app), [1, 4, 2, 3]);
        assert_eq!(app.selected, 3, "port 3 is the slowest now");
        press(&mut app, KeyCode::Home);
        app.look(Ok(look(4, flows(&[(1, 100), (2, 90), (3, 3), (4, 5)]))));
        assert_eq!((app.selected, app.highlighted()), (0, None));
        press(&mut app, KeyCode::Down);
        app.look(Ok(look(5, flows(&[(2, 100)]))));
        assert_eq!(app.highlighted(), None, "it is gone");
    }

    #[test]
    fn a_filter_holds_while_it_is_typed() {
        let mut app = running();
        press(&mut app, KeyCode::Char('/'));
        write(&mut app, "veth-a");
        assert_eq!(ports(&app), [4, 2]);
        press(&mut app, KeyCode::Enter);
        assert_eq!(app.typing, None);
        // One that is wrong so far changes nothing, and is not taken.
        press(&mut app, KeyCode::Char('/'));
        write(&mut app, " srtt>");
        assert!(app.typing.as_ref().unwrap().problem.is_some());
        assert_eq!(app.filter_text, "veth-a srtt");
        press(&mut app, KeyCode::Enter);
        assert!(app.typing.is_some());
        write(&mut app, "1");
        assert_eq!(ports(&app), [4, 2]);
        press(&mut app, KeyCode::Esc);
        assert_eq!((app.filter_text.as_str(), ports(&app).len()), ("veth-a", 2));
        press(&mut app, KeyCode::Esc);
        assert_eq!(ports(&app).len(), 4);
    }

    #[test]
    fn what_the_command_was_given_stays() {
        let mut app = running();
        app.given = "veth-b".parse().unwrap();
        press(&mut app, KeyCode::Esc);
        assert_eq!(ports(&app), [3, 1]);
    }

    #[test]
    fn any_column_can_be_sorted_by() {
        let mut app = running();
        let mut seen = Vec::new();
        for _ in Column::WATCHED {
            seen.push(app.order.column);
            press(&mut app, KeyCode::Right);
        }
        assert_eq!(app.order.column, Column::Sending);
        assert!(Column::WATCHED.iter().all(|column| seen.contains(column)));
        press(&mut app, KeyCode::Left);
        press(&mut app, KeyCode::Right);
        press(&mut app, KeyCode::Char('r'));
        assert_eq!(ports(&app), [1, 2, 3, 4]);
    }

    #[test]
    fn pausing_keeps_what_is_shown() {
        let mut app = running();
        press(&mut app, KeyCode::Char(' '));
        app.look(Ok(look(3, Vec::new())));
        assert_eq!(ports(&app).len(), 4);
        press(&mut app, KeyCode::Char(' '));
        app.look(Err("gone".to_owned()));
        assert_eq!(app.trouble.as_deref(), Some("gone"));
        app.look(Ok(look(4, Vec::new())));
        assert_eq!((app.trouble.as_ref(), app.rows()), (None, 0));
    }

    #[test]
    fn a_tenant_leads_to_its_flows() {
        let mut app = running();
        press(&mut app, KeyCode::Tab);
        assert_eq!((app.view, app.rows()), (View::Tenants, 2));
        press(&mut app, KeyCode::End);
        assert_eq!(app.tenant().unwrap().tenant, "veth-b");
        press(&mut app, KeyCode::Enter);
        assert_eq!((app.view, ports(&app)), (View::Flows, vec![3, 1]));
    }

    #[test]
    fn the_selection_is_on_the_screen() {
        let mut app = running();
        app.scroll(2);
        press(&mut app, KeyCode::End);
        app.scroll(2);
        assert_eq!((app.selected, app.offset), (3, 2));
        press(&mut app, KeyCode::Home);
        app.scroll(2);
        assert_eq!(app.offset, 0);
        press(&mut app, KeyCode::PageDown);
        assert_eq!(app.selected, 2);
        // Without rows nothing is selected, and no key hurts.
        app.look(Ok(look(9, Vec::new())));
        for code in [
            KeyCode::Down,
            KeyCode::End,
            KeyCode::PageDown,
            KeyCode::Enter,
        ] {
            press(&mut app, code);
            app.scroll(0);
        }
        assert_eq!((app.selected, app.offset), (0, 0));
    }

    #[test]
    fn q_and_control_c_end_it() {
        let mut app = running();
        assert!(press(&mut app, KeyCode::Char('q')));
        press(&mut app, KeyCode::Char('/'));
        assert!(!press(&mut app, KeyCode::Char('q')), "a letter of a filter");
        assert!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }

    #[test]
    fn ten_thousand_flows_are_arranged() {
        let many: Vec<(u16, u64)> = (1..=10_000).map(|port| (port, u64::from(port))).collect();
        let mut app = app();
        app.look(Ok(look(1, Vec::new())));
        app.look(Ok(look(2, flows(&many))));
        assert_eq!(ports(&app)[..2], [10_000, 9_999]);
        press(&mut app, KeyCode::Char('/'));
        write(&mut app, "veth-a sending>79k");
        assert_eq!(ports(&app).len(), 63, "even ports above 9875");
    }
}
