import assert from 'node:assert/strict';
import type { SyntaxNode } from '@lezer/common';
import { parser } from '@prometheus-io/lezer-promql';

/** A condition on one label, such as `state=~"up|down"`. The operator is left out. */
interface LabelMatcher {
  readonly label: string;
  /** Words to which the matcher compares the label, such as `up` and `down`. Empty when the matcher uses other regular-expression syntax than `|`. */
  readonly values: readonly string[];
}

/** A vector selector: a metric and its label matchers, such as `pie_hosts{state=~"up|down"}`. */
export interface Selector {
  readonly metric: string;
  readonly matchers: readonly LabelMatcher[];
}

/** The metrics and labels that a PromQL expression names. */
export interface Expression {
  readonly selectors: readonly Selector[];
  /** Labels in the lists of `by`, `without`, `on` and similar clauses. */
  readonly groups: readonly string[];
}

/** Matches words separated by `|`, without other regular-expression syntax. */
const WORDS = /^[\w-]+(\|[\w-]+)*$/;

/** Parses an expression with Prometheus's own grammar. @throws AssertionError for an invalid expression */
export function readExpression(text: string): Expression {
  const tree = parser.parse(text);
  const selectors: { metric: string; matchers: LabelMatcher[] }[] = [];
  const groups: string[] = [];
  const textOf = ({ from, to }: SyntaxNode) => text.slice(from, to);
  tree.iterate({
    enter: ({ type, node }) => {
      assert.ok(!type.isError, `invalid expression at offset ${node.from}: ${text}`);
      if (type.name === 'VectorSelector')
        selectors.push({ metric: textOf(node.getChild('Identifier')!), matchers: [] });
      if (type.name === 'UnquotedLabelMatcher') {
        const label = textOf(node.getChild('LabelName')!);
        const unquotedValue = textOf(node.getChild('StringLiteral')!).slice(1, -1);
        const values = WORDS.test(unquotedValue) ? unquotedValue.split('|') : [];
        // The iteration enters a selector before its matchers, so the matcher belongs to the last selector.
        selectors.at(-1)!.matchers.push({ label, values });
      }
      if (type.name === 'GroupingLabels') groups.push(...node.getChildren('LabelName').map(textOf));
    },
  });
  return { selectors, groups };
}
