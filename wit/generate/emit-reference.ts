import { HEADER } from './names.ts';
import type { CallReference, ContractReference, InterfaceReference, TypeReference } from './reference.ts';

/** The text of `reference.ts`: the reference as a constant, for programs that show it as a page. */
export const emitReferenceData = (reference: ContractReference): string =>
  [
    HEADER,
    "import type { ContractReference } from '../generate/reference.ts';",
    '',
    `export const reference: ContractReference = ${JSON.stringify(reference, null, 1)};`,
    '',
  ].join('\n');

/** The text of `REFERENCE.md`. */
export function emitReference(reference: ContractReference): string {
  const { version, docs, introduction, interfaces, exports } = reference;
  return [
    '<!-- Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source. -->',
    `# ${reference.package} ${version}`,
    '',
    `${oneLine(docs)} The calls in TypeScript: \`wit/generated/guest.d.ts\`; in C: \`wit/generated/pie.h\`; in Rust: \`wit/generated/pie.rs\`.`,
    '',
    introduction,
    '',
    '| Interface | |',
    '| --- | --- |',
    ...interfaces.map((entry) => `| [${entry.name}](#${entry.name}) | ${cell(firstSentence(entry.docs))} |`),
    '',
    '## What an inferlet exports',
    '',
    ...exports.flatMap(callLines),
    ...interfaces.flatMap(interfaceLines),
  ].join('\n');
}

function interfaceLines(entry: InterfaceReference): string[] {
  return [
    `## ${entry.name}`,
    '',
    oneLine(entry.docs),
    '',
    `\`${entry.id}\` · ${entry.needs}`,
    '',
    ...entry.types.flatMap(typeLines),
    ...entry.calls.flatMap(callLines),
  ];
}

function typeLines({ kind, name, docs, members }: TypeReference): string[] {
  const head = [`### ${kind} ${name}`, '', ...(docs ? [oneLine(docs), ''] : [])];
  if (members.length === 0) return head;
  return [
    ...head,
    '| | | |',
    '| --- | --- | --- |',
    ...members.map(
      (member) => `| \`${member.name}\` | ${member.type ? `\`${member.type}\`` : ''} | ${cell(member.docs)} |`,
    ),
    '',
  ];
}

function callLines({ name, signature, docs, cost, errors, errorsTitle, c }: CallReference): string[] {
  return [
    `### ${name}`,
    '',
    '```wit',
    signature,
    '```',
    '',
    ...(docs ? [oneLine(docs), ''] : []),
    `${cost}${errors.length > 0 ? ` ${errorsTitle}: ${errors.map((error) => `\`${error}\``).join(', ')}.` : ''} C: \`${c}\`.`,
    '',
  ];
}

const oneLine = (text: string): string => text.replaceAll('\n', ' ');

const cell = (text: string): string => oneLine(text).replaceAll('|', '\\|');

const firstSentence = (text: string): string => /^.*?\.(?= [A-Z]|$)/.exec(oneLine(text))?.[0] ?? oneLine(text);
