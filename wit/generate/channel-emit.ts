import type { Answering } from './channel-io.ts';
import { checkPlacement, placeOf } from './channel-placement.ts';
import { codecName, namedCodec, type ResourceNumber, readExpression, writeStatement } from './channel-values.ts';
import { declaration, hostNames, typeText } from './emit-host.ts';
import { type NamedType, parts, type WitFunction, type WitInterface, type WitType, type WitWorld } from './model.ts';
import { HEADER } from './names.ts';

/**
 * The text of `channel.ts`: the codec of every declared type, and the calls that a sandbox sends to the runtime.
 *
 * @param contract what inferlets import
 * @param internal the channel's own interfaces
 * @throws TypeError for a type that cannot cross
 */
export function emitChannel(contract: WitWorld, internal: WitWorld): string {
  checkPlacement(contract);
  // Names of the types that `host.ts` declares, by codec name. `channel.ts` imports these types and declares all others itself.
  const hostNameOf = new Map([...hostNames(contract)].map(([type, name]) => [codecName(type), name]));
  // TypeScript names of the types found so far. The contract and the channel's interfaces are resolved separately, so one type may have two objects;
  // both have the same codec name.
  const names = new Map<NamedType, string>();
  // The types that get a codec, by codec name.
  const typeOfCodec = new Map<string, NamedType>();
  // The types with a codec that `host.ts` does not declare.
  const channelOnlyTypes: NamedType[] = [];
  const declare = (type: WitType | null): void => {
    if (!type || ('name' in type && names.has(type))) return;
    for (const part of parts(type)) declare(part);
    if (!('name' in type)) return;
    const key = codecName(type);
    names.set(type, hostNameOf.get(key) ?? key);
    if (typeOfCodec.has(key)) return;
    typeOfCodec.set(key, type);
    if (!hostNameOf.has(key)) channelOnlyTypes.push(type);
  };
  const interfaces = [...contract.imports, ...internal.imports];
  for (const entry of interfaces) {
    for (const type of entry.types) declare(type);
    for (const fn of functionsOf(entry)) {
      for (const param of fn.params) declare(param.type);
      declare(fn.result);
    }
  }
  const resources = interfaces.flatMap((entry) =>
    entry.resources.filter((resource) => resource.functions.some((fn) => placeOf(entry, fn) === 'runtime')),
  );
  const numberOf: ResourceNumber = (interfaceName, name) => {
    const index = resources.findIndex((entry) => entry.interface === interfaceName && entry.name === name);
    if (index < 0) throw new TypeError(`a call to the runtime takes ${interfaceName} ${name}, which is not there`);
    return index;
  };
  const calls = interfaces.flatMap((entry) => [
    ...functionsOf(entry)
      .filter((fn) => ['runtime', 'outbox'].includes(placeOf(entry, fn)))
      .map((fn) => callText(entry, fn, names, numberOf)),
    ...entry.resources
      .filter((resource) => resources.includes(resource))
      .map(({ name }) => dropText(entry, name, numberOf(entry.name, name))),
  ]);
  const importedNames = [...new Set([...typeOfCodec.keys()].flatMap((key) => hostNameOf.get(key) ?? []))].sort();
  return [
    HEADER,
    "import type { ChannelCall, ValueReader, ValueWriter } from '../generate/channel-io.ts';",
    `import type { Outcome, ${importedNames.join(', ')} } from './host.ts';`,
    '',
    ...channelOnlyTypes.flatMap((type) => [...declaration(type, names), '']),
    ...[...typeOfCodec.values()].flatMap((type) => namedCodec(type, names.get(type) ?? type.js, numberOf)),
    '',
    '/** Resource types whose objects live in the runtime. The index of a type is its number. */',
    `export const CHANNEL_RESOURCES: readonly string[] = [${resources.map(({ interface: of, name }) => `'${of}/${name}'`).join(', ')}];`,
    '',
    '/** Calls that the sandbox sends to the runtime. The index of a call is its number. */',
    'export const CHANNEL_CALLS: readonly ChannelCall[] = [',
    ...calls,
    '];',
    '',
  ].join('\n');
}

const functionsOf = (entry: WitInterface): readonly WitFunction[] => [
  ...entry.functions,
  ...entry.resources.flatMap((resource) => resource.functions),
];

function callText(
  entry: WitInterface,
  fn: WitFunction,
  names: ReadonlyMap<NamedType, string>,
  numberOf: ResourceNumber,
): string {
  const self: WitType[] =
    fn.kind === 'method' ? [{ kind: 'borrow', interface: entry.name, resource: fn.resource ?? '' }] : [];
  const params = [...self, ...fn.params.map((param) => param.type)];
  const madeResource = fn.result?.kind === 'own' ? numberOf(fn.result.interface, fn.result.resource) : -1;
  const types = params.map((type) => (type.kind === 'borrow' ? 'unknown' : typeText(type, names)));
  const answering = answeringOf(entry, fn);
  const hasAnswer = answering === 'future' || answering === 'waits';
  // A call that makes a resource needs no answer: the sandbox has chosen the number of the new object.
  const value = hasAnswer ? answerValue(fn) : null;
  const write = value ? writeStatement(value, 'v', numberOf) : '';
  return [
    '  {',
    `    interface: '${entry.name}', name: '${fn.coreName}', answering: '${answering}', resource: ${madeResource}, fallible: ${isFallible(value)},`,
    `    writeArguments(${params.length > 0 ? `w, [${params.map((_, i) => `a${i}`).join(', ')}]: readonly [${types.join(', ')}]` : ''}) { ${params.map((type, i) => writeStatement(type, `a${i}`, numberOf)).join(' ')} },`,
    `    readArguments(${params.length > 0 ? 'r' : ''}) { return [${params.map((type) => readExpression(type, numberOf)).join(', ')}]; },`,
    write === '' ? '    writeResult() {},' : `    writeResult(w, v: ${typeText(value, names)}) { ${write} },`,
    `    readResult(${write === '' ? '' : 'r'})${value ? `: ${typeText(value, names)}` : ''} { return ${value ? readExpression(value, numberOf) : 'undefined'}; },`,
    '  },',
  ].join('\n');
}

const dropText = (entry: WitInterface, resource: string, number: number): string =>
  [
    '  {',
    `    interface: '${entry.name}', name: '[resource-drop]${resource}', answering: 'drop', resource: ${number}, fallible: false,`,
    `    writeArguments(w, [a0]: readonly [unknown]) { w.handle(${number}, a0); },`,
    `    readArguments(r) { return [r.take(${number})]; },`,
    '    writeResult() {},',
    '    readResult() { return undefined; },',
    '  },',
  ].join('\n');

function answeringOf(entry: WitInterface, fn: WitFunction): Answering {
  if (placeOf(entry, fn) === 'outbox') return 'outbox';
  switch (fn.result?.kind) {
    case undefined:
      return 'nothing';
    case 'future':
      return 'future';
    case 'own':
      return 'makes';
    default:
      return 'waits';
  }
}

/** Type of the value in an answer. If the call returns a future, the type of the future's value. */
const answerValue = ({ result }: WitFunction): WitType | null => (result?.kind === 'future' ? result.value : result);

const isFallible = (type: WitType | null): boolean =>
  type?.kind === 'result' && type.err !== null && 'name' in type.err && codecName(type.err) === 'TypesError';
