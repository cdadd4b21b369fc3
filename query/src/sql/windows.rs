//! Windows with names: `OVER w`, `OVER (w ROWS 1 PRECEDING)` and `WINDOW v AS (w ORDER BY t)`.
//!
//! DataFusion finds `OVER w` in the list of a SELECT alone, and leaves out a name in parentheses. So each is replaced by the window that it
//! stands for. As in PostgreSQL, a window that is made from another one has its PARTITION BY and its ORDER BY, and may add what is not there.

use super::using::value_of;
use super::visit::{Flow, each_expr};
use crate::error::QueryError;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, NamedWindowDefinition, NamedWindowExpr, Select, SelectItem, Value, WindowSpec, WindowType,
};
use ebbtide::suggest;
use ebbtide_ttl::Code;
use std::collections::HashSet;
use std::mem::replace;
use std::ops::ControlFlow;

/// The windows of each query and SELECT that is being visited; those of a query are those of its SELECT, once that has been visited.
#[derive(Default)]
pub(super) struct Windows(Vec<Vec<(String, WindowSpec)>>);

impl Windows {
    pub(super) fn enter_query(&mut self) {
        self.0.push(Vec::new());
    }

    pub(super) fn leave_query(&mut self) {
        self.0.pop();
    }

    pub(super) fn enter_select(&mut self, select: &mut Select) -> Flow {
        let mut known = Vec::new();
        for NamedWindowDefinition(name, window) in &mut select.named_window {
            let spec = match window {
                NamedWindowExpr::NamedWindow(of) => found(of, &known).cloned(),
                NamedWindowExpr::WindowSpec(spec) => complete(spec, &known).map(|()| spec.clone()),
            };
            let spec = match spec {
                Ok(spec) => spec,
                Err(what) => return wrong(what),
            };
            *window = NamedWindowExpr::WindowSpec(spec.clone());
            known.push((value_of(name), spec));
        }
        name_items(&mut select.projection);
        self.0.push(known);
        ControlFlow::Continue(())
    }

    pub(super) fn leave_select(&mut self) {
        if let (Some(windows), Some(of_query)) = (self.0.pop(), self.0.last_mut()) {
            *of_query = windows;
        }
    }

    /// Replaces the name of a window in a call.
    pub(super) fn in_call(&self, call: &mut Function) -> Flow {
        let known = self.0.last().map_or(&[][..], Vec::as_slice);
        let replaced = match &mut call.over {
            Some(WindowType::WindowSpec(spec)) => complete(spec, known),
            Some(WindowType::NamedWindow(name)) => match found(name, known) {
                Ok(spec) => {
                    call.over = Some(WindowType::WindowSpec(spec.clone()));
                    Ok(())
                }
                Err(what) => Err(what),
            },
            None => Ok(()),
        };
        match replaced {
            Ok(()) => ControlFlow::Continue(()),
            Err(what) => wrong(what),
        }
    }
}

fn wrong(what: String) -> Flow {
    ControlFlow::Break(Box::new(QueryError::new(Code::BadValue, what)))
}

/// Adds what a window has from the one that it names.
fn complete(spec: &mut WindowSpec, known: &[(String, WindowSpec)]) -> Result<(), String> {
    let Some(name) = spec.window_name.take() else { return Ok(()) };
    let named = found(&name, known)?;
    if named.window_frame.is_some() {
        return Err(format!(
            "window '{name}' has a frame, so no other window can be made from it; OVER {name} without parentheses uses it as it is"
        ));
    }
    if !spec.partition_by.is_empty() {
        return Err(format!(
            "a window that is made from window '{name}' has its PARTITION BY, or none; leave out PARTITION BY, or leave out {name}"
        ));
    }
    if !named.order_by.is_empty() && !spec.order_by.is_empty() {
        return Err(format!(
            "window '{name}' has an ORDER BY, which a window that is made from it cannot replace; leave out ORDER BY, or leave out {name}"
        ));
    }
    spec.partition_by.clone_from(&named.partition_by);
    if spec.order_by.is_empty() {
        spec.order_by.clone_from(&named.order_by);
    }
    Ok(())
}

fn found<'a>(name: &Ident, known: &'a [(String, WindowSpec)]) -> Result<&'a WindowSpec, String> {
    let value = value_of(name);
    let window = known.iter().find(|(known, _)| *known == value);
    window.map(|(_, window)| window).ok_or_else(|| {
        let mut message = format!("there is no window '{value}'");
        match suggest::hint(&value, known.iter().map(|(known, _)| known.as_str())) {
            hint if hint.is_empty() => {
                message.push_str(&format!("; write WINDOW {value} AS (ORDER BY ...) behind the conditions"))
            }
            hint => message.push_str(&hint),
        }
        message
    })
}

/// Names the columns with such windows as they were typed.
fn name_items(items: &mut [SelectItem]) {
    let mut taken = HashSet::new();
    for item in items {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let mut is_named = false;
        each_expr(expr, &mut |expr| {
            is_named |= match expr {
                Expr::Function(Function { over: Some(WindowType::WindowSpec(spec)), .. }) => spec.window_name.is_some(),
                Expr::Function(Function { over: Some(WindowType::NamedWindow(_)), .. }) => true,
                _ => false,
            };
        });
        if !is_named {
            continue;
        }
        let text = expr.to_string();
        if taken.insert(text.clone()) {
            let expr = replace(expr, Expr::Value(Value::Null.into()));
            *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', text) };
        }
    }
}
