import {
  type Field,
  type NamedType,
  parts,
  type WitFunction,
  type WitInterface,
  type WitType,
  type WitWorld,
} from './model.ts';
import { HEADER, typeName } from './names.ts';

/** The text of `world.ts`: the contract as constants, declared types first, so that a type used twice is one object. */
export function emitWorld(world: WitWorld): string {
  const emitted = new Set<NamedType>();
  const lines: string[] = [];
  const declare = (type: WitType | null): void => {
    if (!type) return;
    for (const part of parts(type)) declare(part);
    if (!('name' in type) || emitted.has(type)) return;
    emitted.add(type);
    const kind = { record: 'RecordType', variant: 'VariantType', enum: 'EnumType' }[type.kind];
    lines.push(`export const ${typeName(type)}Type: ${kind} = ${declaration(type)};`);
  };
  for (const entry of world.imports) {
    for (const type of entry.types) declare(type);
    for (const item of [...entry.functions, ...entry.resources.flatMap((resource) => resource.functions)]) {
      for (const param of item.params) declare(param.type);
      declare(item.result);
    }
  }
  for (const entry of world.imports) {
    lines.push(`export const ${entry.js}Interface: WitInterface = ${interfaceText(entry)};`);
  }
  lines.push(
    `export const world: WitWorld = { package: '${world.package}', version: '${world.version}', name: '${world.name}', imports: [${world.imports.map((entry) => `${entry.js}Interface`).join(', ')}], exports: [${world.exports.map(functionText).join(', ')}] };`,
  );
  return [
    HEADER,
    "import type { EnumType, RecordType, VariantType, WitInterface, WitWorld } from '../generate/model.ts';",
    '',
    ...lines,
    '',
  ].join('\n');
}

function typeText(type: WitType | null): string {
  if (!type) return 'null';
  if ('name' in type) return `${typeName(type)}Type`;
  switch (type.kind) {
    case 'list':
      return `{ kind: 'list', element: ${typeText(type.element)} }`;
    case 'option':
    case 'future':
      return `{ kind: '${type.kind}', value: ${typeText(type.value)} }`;
    case 'tuple':
      return `{ kind: 'tuple', items: [${type.items.map(typeText).join(', ')}] }`;
    case 'result':
      return `{ kind: 'result', ok: ${typeText(type.ok)}, err: ${typeText(type.err)} }`;
    case 'own':
    case 'borrow':
      return `{ kind: '${type.kind}', interface: '${type.interface}', resource: '${type.resource}' }`;
    default:
      return `{ kind: '${type.kind}' }`;
  }
}

const fieldText = ({ name, js, type }: Field): string => `{ name: '${name}', js: '${js}', type: ${typeText(type)} }`;

function declaration(type: NamedType): string {
  const head = `kind: '${type.kind}', interface: '${type.interface}', name: '${type.name}', js: '${type.js}'`;
  switch (type.kind) {
    case 'record':
      return `{ ${head}, fields: [${type.fields.map(fieldText).join(', ')}] }`;
    case 'variant':
      return `{ ${head}, cases: [${type.cases.map((entry) => `{ name: '${entry.name}', type: ${typeText(entry.type)} }`).join(', ')}] }`;
    case 'enum':
      return `{ ${head}, cases: [${type.cases.map((entry) => `{ name: '${entry.name}' }`).join(', ')}] }`;
  }
}

const functionText = (entry: WitFunction): string =>
  `{ name: '${entry.name}', js: '${entry.js}', kind: '${entry.kind}', resource: ${entry.resource === null ? 'null' : `'${entry.resource}'`}, coreName: '${entry.coreName}', params: [${entry.params.map(fieldText).join(', ')}], result: ${typeText(entry.result)}, async: ${entry.async} }`;

function interfaceText(entry: WitInterface): string {
  const resources = entry.resources.map(
    (resource) =>
      `{ interface: '${resource.interface}', name: '${resource.name}', js: '${resource.js}', functions: [\n    ${resource.functions.map((item) => `${functionText(item)},\n  `).join('  ')}] }`,
  );
  return [
    '{',
    `  name: '${entry.name}', js: '${entry.js}', id: '${entry.id}',`,
    `  types: [${entry.types.map((type) => `${typeName(type)}Type`).join(', ')}],`,
    `  resources: [${resources.join(', ')}],`,
    `  functions: [${entry.functions.map((item) => `\n    ${functionText(item)},`).join('')}${entry.functions.length ? '\n  ' : ''}],`,
    '}',
  ].join('\n');
}
