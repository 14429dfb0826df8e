import { casesOf, discriminantSize, flatten, layoutOf, payloadOffset, sequence } from '../layout.ts';
import { type NamedType, parts, pascalCase, type WitFunction, type WitType, type WitWorld } from '../model.ts';
import { comment, identifier, typeName } from './names.ts';

/** Types of the values that an inferlet gets from the platform (`lift`), and of those that it gives to the platform (`lower`). */
export interface Directions {
  readonly lift: ReadonlySet<WitType>;
  readonly lower: ReadonlySet<WitType>;
}

/** Finds the types in the results (`lift`) and parameters (`lower`) of the world's imports, at any depth. */
export function directionsOf(world: WitWorld): Directions {
  const lift = new Set<WitType>();
  const lower = new Set<WitType>();
  const visit = (type: WitType | null, into: Set<WitType>): void => {
    if (!type || into.has(type)) return;
    into.add(type);
    for (const part of parts(type)) visit(part, into);
  };
  const functions: WitFunction[] = world.imports.flatMap((entry) => [
    ...entry.resources.flatMap((resource) => resource.functions),
    ...entry.functions,
  ]);
  for (const fn of functions) {
    for (const { type } of fn.params) visit(type, lower);
    visit(fn.result, lift);
  }
  return { lift, lower };
}

/** The declaration of a record, enum or variant, and the code that reads its values from memory and passes them to calls. */
export function typeLines(type: NamedType, directions: Directions): string[] {
  const name = pascalCase(type.name);
  const lines = [...comment(type.docs), `#[derive(${derivedTraits(type).join(', ')})]`, ...declaration(type, name), ''];
  const { size, align } = layoutOf(type);
  const consts = `const SIZE: usize = ${size}; const ALIGN: usize = ${align}; const FLAT: usize = ${flatten(type).length};`;
  lines.push(`impl abi::Shape for ${name} { ${consts} }`, '');
  if (directions.lift.has(type)) {
    lines.push(
      `impl abi::Lift for ${name} {`,
      '    #[inline]',
      '    unsafe fn lift(at: *const u8) -> Self {',
      ...liftLines(type).map((line) => `        ${line}`),
      '    }',
      '}',
      '',
    );
  }
  if (directions.lower.has(type)) {
    lines.push(
      `impl abi::Lower for ${name} {`,
      '    #[inline]',
      '    unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {',
      ...lowerLines(type).map((line) => `        ${line}`),
      '    }',
      '    #[inline]',
      '    fn flat(&self, to: &mut abi::Arguments) {',
      ...flatLines(type).map((line) => `        ${line}`),
      '    }',
      '}',
      '',
    );
  }
  return lines;
}

function derivedTraits(type: NamedType): string[] {
  const commonTraits = ['Debug', 'Clone', 'PartialEq'];
  if (type.kind === 'enum') return [...commonTraits, 'Copy', 'Eq'];
  return hasDefault(type) ? [...commonTraits, 'Default'] : commonTraits;
}

/** True when Rust can derive `Default` for a type. A variant qualifies when its first case is `none`. */
function hasDefault(type: WitType): boolean {
  switch (type.kind) {
    case 'record':
      return type.fields.every((field) => hasDefault(field.type));
    case 'variant':
      return isNoneCase(type.cases[0]);
    case 'tuple':
      return type.items.every(hasDefault);
    case 'enum':
    case 'result':
    case 'own':
    case 'borrow':
    case 'future':
      return false;
    default:
      return true;
  }
}

const isNoneCase = (entry: { readonly name: string; readonly type: WitType | null } | undefined): boolean =>
  entry?.name === 'none' && entry.type === null;

function declaration(type: NamedType, name: string): string[] {
  if (type.kind === 'record') {
    const fields = type.fields.flatMap((field) => [
      ...comment(field.docs, '    '),
      `    pub ${identifier(field.name)}: ${typeName(field.type)},`,
    ]);
    return [`pub struct ${name} {`, ...fields, '}'];
  }
  if (type.kind === 'enum') {
    const cases = type.cases.flatMap((entry) => [...comment(entry.docs, '    '), `    ${pascalCase(entry.name)},`]);
    return [`pub enum ${name} {`, ...cases, '}'];
  }
  const cases = type.cases.flatMap((entry, index) => [
    ...comment(entry.docs, '    '),
    ...(index === 0 && isNoneCase(entry) ? ['    #[default]'] : []),
    `    ${pascalCase(entry.name)}${entry.type ? `(${typeName(entry.type)})` : ''},`,
  ]);
  return [`pub enum ${name} {`, ...cases, '}'];
}

/** Rust type of the number that tells the case of an enum or variant. */
const tagType = (type: NamedType): string => `u${discriminantSize(casesOf(type).length) * 8}`;

function liftLines(type: NamedType): string[] {
  if (type.kind === 'record') {
    const { offsets } = sequence(type.fields.map((field) => field.type));
    const fields = type.fields.map(
      (field, index) => `    ${identifier(field.name)}: abi::Lift::lift(at.add(${offsets[index]})),`,
    );
    return ['Self {', ...fields, '}'];
  }
  const arms = type.cases.map((entry, index) => {
    // Only the cases of variants have a member `type`.
    const payload = 'type' in entry && entry.type;
    const value = payload ? `(abi::Lift::lift(at.add(${payloadOffset(type)})))` : '';
    return `    ${index} => Self::${pascalCase(entry.name)}${value},`;
  });
  return [`match *(at as *const ${tagType(type)}) {`, ...arms, '    _ => abi::wrong_tag(),', '}'];
}

function lowerLines(type: NamedType): string[] {
  if (type.kind === 'record') {
    const { offsets } = sequence(type.fields.map((field) => field.type));
    return type.fields.map(
      (field, index) => `abi::Lower::lower(&self.${identifier(field.name)}, at.add(${offsets[index]}), kept);`,
    );
  }
  // `let _ = kept` uses the parameter `kept`: Rust warns about unused parameters.
  if (type.kind === 'enum') return ['let _ = kept;', `*(at as *mut ${tagType(type)}) = *self as ${tagType(type)};`];
  const arms = type.cases.map((entry, index) => {
    const tag = `*(at as *mut ${tagType(type)}) = ${index}`;
    const value = `abi::Lower::lower(value, at.add(${payloadOffset(type)}), kept)`;
    return entry.type
      ? `    Self::${pascalCase(entry.name)}(value) => { ${tag}; ${value} }`
      : `    Self::${pascalCase(entry.name)} => ${tag},`;
  });
  return ['match self {', ...arms, '}'];
}

function flatLines(type: NamedType): string[] {
  if (type.kind === 'record')
    return type.fields.map((field) => `abi::Lower::flat(&self.${identifier(field.name)}, to);`);
  if (type.kind === 'enum') return ['to.push(*self as u64);'];
  const arms = type.cases.map((entry, index) =>
    entry.type
      ? `    Self::${pascalCase(entry.name)}(value) => { to.push(${index}); abi::Lower::flat(value, to) }`
      : `    Self::${pascalCase(entry.name)} => to.push(${index}),`,
  );
  // All cases take as many core values as the largest one: `pad` fills up the others.
  const end = `let end = to.count() + <Self as abi::Shape>::FLAT;`;
  return [end, 'match self {', ...arms, '}', 'to.pad(end);'];
}
