//! Ebbtide's SQL dialect: sqlparser's generic one, with `^` and `**` as the power operator, which binds tighter than `*`, and
//! `ORDER BY ALL`.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use std::any::TypeId;

/// Precedence of `^`: above `*` (40) and below `::` (50), as in PostgreSQL.
const POWER: u8 = 45;

/// The dialect.
#[derive(Debug)]
pub(crate) struct EbbtideDialect;

macro_rules! as_generic {
    ($($name:ident)*) => { $(fn $name(&self) -> bool { GenericDialect.$name() })* };
}

/// Whether `**` comes next.
fn is_double_star(parser: &Parser<'_>) -> bool {
    let [first, second] = [0, 1].map(|at| parser.peek_nth_token_ref(at));
    first.token == Token::Mul && second.token == Token::Mul && first.span.end == second.span.start
}

impl Dialect for EbbtideDialect {
    /// The parser checks the dialect's type where there is no method for a feature.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        (parser.peek_token_ref().token == Token::Caret || is_double_star(parser)).then_some(Ok(POWER))
    }

    /// `x ** y`, which the tokenizer takes for two operators.
    fn parse_infix(&self, parser: &mut Parser<'_>, expr: &Expr, precedence: u8) -> Option<Result<Expr, ParserError>> {
        if !is_double_star(parser) {
            return None;
        }
        parser.advance_token();
        parser.advance_token();
        let power = parser.parse_subexpr(precedence).map(|exponent| Expr::BinaryOp {
            left: Box::new(expr.clone()),
            op: BinaryOperator::BitwiseXor,
            right: Box::new(exponent),
        });
        Some(power)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect.is_identifier_part(ch)
    }

    fn supports_order_by_all(&self) -> bool {
        true
    }

    as_generic! {
        supports_unicode_string_literal supports_partition_by_after_order_by supports_array_join_syntax
        supports_group_by_expr supports_group_by_with_modifier supports_left_associative_joins_without_parens
        supports_connect_by supports_match_recognize supports_pipe_operator supports_start_transaction_modifier
        supports_window_function_null_treatment_arg supports_dictionary_syntax
        supports_window_clause_named_window_reference supports_parenthesized_set_variables
        supports_select_wildcard_except support_map_literal_syntax allow_extract_custom allow_extract_single_quotes
        supports_extract_comma_syntax supports_create_view_comment_syntax supports_parens_around_table_factor
        supports_values_as_table_factor supports_create_index_with_clause supports_explain_with_utility_options
        supports_limit_comma supports_update_order_by supports_from_first_select supports_projection_trailing_commas
        supports_asc_desc_in_column_definition supports_try_convert supports_bitwise_shift_operators supports_comment_on
        supports_load_extension supports_named_fn_args_with_assignment_operator supports_struct_literal
        supports_empty_projections supports_nested_comments supports_multiline_comment_hints
        supports_user_host_grantee supports_string_escape_constant supports_array_typedef_with_brackets
        supports_match_against supports_set_names supports_comma_separated_set_assignments
        supports_filter_during_aggregation supports_select_wildcard_exclude supports_data_type_signed_suffix
        supports_interval_options supports_quote_delimited_string supports_select_wildcard_replace
        supports_select_wildcard_ilike supports_select_wildcard_rename supports_optimize_table supports_install
        supports_detach supports_prewhere supports_with_fill supports_limit_by supports_interpolate supports_settings
        supports_select_format supports_comment_optimizer_hint supports_constraint_keyword_without_name
        supports_key_column_option supports_comma_separated_trim supports_cte_without_as
        supports_select_item_multi_column_alias supports_xml_expressions
    }
}
