/** `node runtime/grammar/testing/schema-suite-table.ts`: writes the table of the schema suite again. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { runSuite, type SchemaOutcome } from './schema-suite.ts';

const TABLE = path.join(import.meta.dirname, '../fixtures/schema-suite.md');

export function writtenTable(): string {
  return readFileSync(TABLE, 'utf8');
}

/** Lists the refused schemas, the schemas with a check at the end, and the valid instances of which a grammar accepts no text. */
export function tableOf(outcomes: readonly SchemaOutcome[]): string {
  const sum = (count: (outcome: SchemaOutcome) => number): number =>
    outcomes.reduce((all, each) => all + count(each), 0);
  const compiledOutcomes = outcomes.filter(({ refusal }) => refusal === null);
  const reached = compiledOutcomes.reduce((all, { valid, narrower }) => all + valid - narrower.length, 0);
  const title = ({ file, description }: SchemaOutcome): string => `${file.replace('.json', '')}: ${description}`;
  return [
    '# JSON-Schema-Test-Suite, draft 2020-12',
    '',
    '`node runtime/grammar/testing/schema-suite-table.ts` writes this file; `schema-suite.test.ts` compares it.',
    '',
    `- Schemas: ${outcomes.length}; refused: ${outcomes.length - compiledOutcomes.length}; checked at the end: ${compiledOutcomes.filter(({ open }) => open.length > 0).length}.`,
    `- Invalid instances that a grammar accepts: ${sum(({ wrong }) => wrong.length)} of ${compiledOutcomes.reduce((all, { invalid }) => all + invalid, 0)}.`,
    `- Valid instances that a grammar accepts in one of our texts: ${reached} of ${sum(({ valid }) => valid)}.`,
    '',
    '## Refused schemas',
    '',
    ...outcomes.flatMap((each) => (each.refusal === null ? [] : [`- ${title(each)} — ${each.refusal}`])),
    '',
    '## Schemas of which a part is checked at the end',
    '',
    ...compiledOutcomes.flatMap((each) =>
      each.open.length === 0 ? [] : [`- ${title(each)} — ${each.open.join(', ')}`],
    ),
    '',
    '## Valid instances that grammars leave out',
    '',
    ...compiledOutcomes.flatMap((each) =>
      each.narrower.length === 0 ? [] : [`- ${title(each)} — ${each.narrower.join('; ')}`],
    ),
    '',
  ].join('\n');
}

if (import.meta.main) writeFileSync(TABLE, tableOf(runSuite()));
