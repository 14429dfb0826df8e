import { Pattern, PatternError, PROPERTY_ESCAPE } from './pattern.ts';

/** Maximum different patterns of a schema. */
export const MAX_PATTERNS = 100;
/** Maximum instructions of all patterns of a schema together. */
const MAX_PATTERN_STEPS = 4000;
/** Maximum `\p{…}` in the different patterns of a schema together: V8 takes up to a quarter of a millisecond for each. */
const MAX_PROPERTY_ESCAPES = 128;
/** Faults that make a schema unusable, after which its compilation ends. Also the maximum of other faults that are listed. */
const MAX_FAULTS = 10;
/** Maximum characters of a refused pattern in its error message. */
const MAX_SHOWN_PATTERN = 100;

const TYPES = ['null', 'boolean', 'object', 'array', 'number', 'string', 'integer'];

/** A schema as a check reads it. */
export type Compiled = boolean | SchemaNode;

/** Members that a value must have, or a schema that it must fit, if it has the member `name`. */
export interface Dependency {
  readonly name: string;
  readonly on: readonly string[] | Compiled;
  /** False for schemas of `dependencies`: as in `@cfworker/json-schema`, they evaluate no members for `unevaluated…` keywords. */
  readonly evaluates: boolean;
}

/**
 * The keywords of one schema, typed, with references and patterns resolved. A keyword that the schema lacks, or whose value has a wrong type, is
 * undefined or empty: a check converts nothing. All nodes have the same members in the same order, so that V8 reads them quickly
 * whatever the schema looks like.
 */
export class SchemaNode {
  targets: readonly Compiled[] = [];
  types: readonly string[] | undefined = undefined;
  const: unknown = undefined;
  enum: readonly unknown[] | undefined = undefined;
  not: Compiled | undefined = undefined;
  anyOf: readonly Compiled[] | undefined = undefined;
  allOf: readonly Compiled[] | undefined = undefined;
  oneOf: readonly Compiled[] | undefined = undefined;
  if: Compiled | undefined = undefined;
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: Compiled | undefined = undefined;
  else: Compiled | undefined = undefined;
  minLength: number | undefined = undefined;
  maxLength: number | undefined = undefined;
  pattern: Pattern | undefined = undefined;
  format: string | undefined = undefined;
  minimum: number | undefined = undefined;
  maximum: number | undefined = undefined;
  exclusiveMinimum: number | undefined = undefined;
  exclusiveMaximum: number | undefined = undefined;
  multipleOf: number | undefined = undefined;
  minItems: number | undefined = undefined;
  maxItems: number | undefined = undefined;
  prefixItems: readonly Compiled[] | undefined = undefined;
  items: Compiled | undefined = undefined;
  additionalItems: Compiled | undefined = undefined;
  contains: Compiled | undefined = undefined;
  minContains: number | undefined = undefined;
  maxContains: number | undefined = undefined;
  unevaluatedItems: Compiled | undefined = undefined;
  uniqueItems = false;
  minProperties: number | undefined = undefined;
  maxProperties: number | undefined = undefined;
  required: readonly string[] = [];
  propertyNames: Compiled | undefined = undefined;
  dependentRequired: readonly Dependency[] = [];
  dependentSchemas: readonly Dependency[] = [];
  dependencies: readonly Dependency[] = [];
  properties: readonly (readonly [name: string, schema: Compiled])[] = [];
  patternProperties: readonly (readonly [pattern: Pattern, schema: Compiled])[] = [];
  additionalProperties: Compiled | undefined = undefined;
  unevaluatedProperties: Compiled | undefined = undefined;
}

/** A mistake in a schema, at a place of the schema. */
export interface CompileFault {
  readonly place: Place | null;
  readonly message: string;
  /**
   * The error when the schema cannot be used at all. Null for a keyword of a wrong type: a check ignores it, because versions exist that were
   * stored before deploys refused it.
   */
  readonly error: SchemaError | PatternError | null;
}

export interface Compilation {
  readonly root: Compiled;
  /** Number of nodes. One takes about half a kilobyte. */
  readonly nodeCount: number;
  readonly faults: readonly CompileFault[];
  /** True if the schema has a keyword `unevaluated…`. */
  readonly tracksEvaluated: boolean;
}

/**
 * Types the keywords of a schema, of all schemas within it, and of exactly those further parts to which references lead. Takes time in
 * proportion to the schema.
 */
export function compile(schema: unknown): Compilation {
  return new Compiler().compile(schema);
}

/** One schema on its way through the compiler. */
interface Position {
  readonly place: Place | null;
  readonly resource: Resource;
  /** Schemas around this one. */
  readonly depth: number;
}

/** A reference that has not been resolved yet. */
interface Reference {
  readonly node: SchemaNode;
  readonly keyword: string;
  readonly reference: string;
  readonly position: Position;
}

class Compiler {
  readonly #faults: CompileFault[] = [];
  readonly #nodes = new Map<JsonSchema, SchemaNode>();
  readonly #references: Reference[] = [];
  readonly #patterns = new Map<string, Pattern>();
  #patternSteps = 0;
  #propertyEscapes = 0;
  #unusableCount = 0;
  #tracksEvaluated = false;

  compile(schema: unknown): Compilation {
    const anchors = new Map<string, { value: unknown; place: Place | null }>();
    const resource = { schema: isObject(schema) ? schema : {}, place: null, anchors };
    const root = this.#schema(schema, { place: null, resource, depth: 0 });
    // A target may have references of its own, which `#schema` adds to this list.
    for (const each of this.#references) this.#follow(each);
    return { root, nodeCount: this.#nodes.size, faults: this.#faults, tracksEvaluated: this.#tracksEvaluated };
  }

  get #isStopped(): boolean {
    return this.#unusableCount >= MAX_FAULTS;
  }

  #follow({ node, keyword, reference, position }: Reference): void {
    const { place, resource } = position;
    try {
      const target = resolve(reference, resource);
      node.targets = [...node.targets, this.#schema(target.value, { place: target.place, resource, depth: 0 })];
    } catch (error) {
      if (!(error instanceof SchemaError)) throw error;
      if (reference.startsWith('#')) this.#unusable(place, `cannot be used: ${error.message}`, error);
      else this.#unusable(inside(place, keyword), 'must point into this schema ("#/…")', error);
    }
  }

  #schema(schema: unknown, { place, resource: enclosing, depth }: Position): Compiled {
    if (typeof schema === 'boolean') return schema;
    const known = isObject(schema) ? this.#nodes.get(schema) : undefined;
    if (known !== undefined) return known;
    const node = new SchemaNode();
    if (this.#isStopped) return node;
    if (!isObject(schema)) {
      this.#unusable(place, 'must be a JSON Schema object');
      return node;
    }
    // An empty schema accepts all values. It needs no node, which takes half a kilobyte.
    const entries = Object.entries(schema);
    if (entries.length === 0) return true;
    if (depth > MAX_SCHEMA_DEPTH) {
      this.#unusable(place, `must not be nested deeper than ${MAX_SCHEMA_DEPTH} schemas`);
      return node;
    }
    this.#nodes.set(schema, node);
    const isResource = typeof schema.$id === 'string' && !schema.$id.startsWith('#');
    const resource = isResource ? { schema, place, anchors: new Map() } : enclosing;
    const position = { place, resource, depth: depth + 1 };
    for (const keyword of ['$anchor', '$dynamicAnchor']) {
      const anchor = schema[keyword];
      if (typeof anchor === 'string') resource.anchors.set(anchor, { value: schema, place });
    }
    // Iterating over the schema's own keywords, rather than asking for each known one, keeps the time in proportion to the schema.
    for (const [keyword, value] of entries) {
      if (value !== undefined) this.#keyword(node, keyword, value, { ...position, place: inside(place, keyword) });
    }
    for (const keyword of REFERENCE_KEYWORDS) {
      const reference = schema[keyword];
      if (typeof reference === 'string')
        this.#references.push({ node, keyword, reference, position: { ...position, place } });
    }
    return node;
  }

  #keyword(node: SchemaNode, keyword: string, value: unknown, position: Position): void {
    const { place } = position;
    switch (keyword) {
      case 'type':
        node.types = this.#types(value, place);
        break;
      case 'const':
        node.const = value;
        break;
      case 'enum':
        if (!Array.isArray(value) || value.length === 0) this.#ignored(place, 'must be a list of at least one value');
        if (Array.isArray(value)) node.enum = value;
        break;
      case 'minLength':
      case 'maxLength':
      case 'minItems':
      case 'maxItems':
      case 'minProperties':
      case 'maxProperties':
      case 'minContains':
      case 'maxContains':
        if (!(Number.isInteger(value) && Number(value) >= 0)) this.#ignored(place, 'must be a whole number, 0 or more');
        node[keyword] = finite(value);
        break;
      case 'minimum':
      case 'maximum':
      case 'exclusiveMinimum':
      case 'exclusiveMaximum':
      case 'multipleOf': {
        const number = finite(value);
        if (number === undefined) this.#ignored(place, 'must be a number');
        else if (keyword === 'multipleOf' && number <= 0) this.#ignored(place, 'must be above 0');
        node[keyword] = number;
        break;
      }
      case 'pattern':
        if (typeof value === 'string') node.pattern = this.#pattern(value, place) ?? undefined;
        else this.#ignored(place, 'must be a regular expression');
        break;
      case 'format':
        if (typeof value === 'string') node.format = value;
        else this.#ignored(place, 'must be a text');
        break;
      case 'uniqueItems':
        if (typeof value !== 'boolean') this.#ignored(place, 'must be true or false');
        node.uniqueItems = value === true;
        break;
      case 'required':
        node.required = this.#names(value, place, 'must be a list of property names');
        break;
      case '$ref':
      case '$recursiveRef':
      case '$dynamicRef':
      case '$id':
      case '$anchor':
      case '$dynamicAnchor':
        if (typeof value !== 'string') this.#ignored(place, 'must be a text');
        break;
      default:
        this.#inner(node, keyword, value, position);
    }
  }

  /** Compiles the schemas that a keyword holds. Other keywords state nothing. */
  #inner(node: SchemaNode, keyword: string, value: unknown, position: Position): void {
    const { place } = position;
    if (isOneOf(SCHEMA_KEYWORDS.ofOne, keyword)) {
      node[keyword] = this.#schema(value, position);
      if (keyword === 'unevaluatedItems' || keyword === 'unevaluatedProperties') this.#tracksEvaluated = true;
    } else if (isOneOf(SCHEMA_KEYWORDS.ofLists, keyword)) {
      const isList = Array.isArray(value);
      if (!isList) this.#unusable(place, 'must be a list of at least one schema');
      else if (value.length === 0) this.#ignored(place, 'must be a list of at least one schema');
      const list: readonly unknown[] = isList ? value : [];
      node[keyword] = list.map((each, at) => this.#schema(each, { ...position, place: inside(place, at) }));
    } else if (keyword === 'dependentRequired') {
      const message = 'must be an object of lists of property names';
      if (!isObject(value)) this.#ignored(place, message);
      node.dependentRequired = entriesOf(value).map(([name, on]) => ({
        name,
        on: this.#names(on, place, message),
        evaluates: true,
      }));
    } else if (isOneOf(SCHEMA_KEYWORDS.ofNamed, keyword)) {
      if (!isObject(value)) this.#unusable(place, 'must be an object of schemas');
      this.#named(node, keyword, entriesOf(value), position);
    }
  }

  #named(
    node: SchemaNode,
    keyword: (typeof SCHEMA_KEYWORDS.ofNamed)[number],
    entries: readonly [string, unknown][],
    position: Position,
  ): void {
    const inner = (name: string, value: unknown) =>
      this.#schema(value, { ...position, place: inside(position.place, name) });
    switch (keyword) {
      case 'properties':
        node.properties = entries.map(([name, value]) => [name, inner(name, value)] as const);
        break;
      case 'patternProperties':
        node.patternProperties = entries.flatMap(([source, value]) => {
          const pattern = this.#pattern(source, inside(position.place, source));
          const schema = inner(source, value);
          return pattern === null ? [] : [[pattern, schema] as const];
        });
        break;
      case 'dependentSchemas':
        node.dependentSchemas = entries.map(([name, value]) => ({ name, on: inner(name, value), evaluates: true }));
        break;
      case 'dependencies':
        node.dependencies = entries.map(([name, value]) => {
          const place = inside(position.place, name);
          const on = Array.isArray(value)
            ? this.#names(value, place, 'must be a list of property names, or a schema')
            : inner(name, value);
          return { name, on, evaluates: false };
        });
        break;
      default:
        // Definitions take part in a check only where references lead to them.
        for (const [name, value] of entries) inner(name, value);
    }
  }

  #types(value: unknown, place: Place | null): readonly string[] | undefined {
    const list: readonly unknown[] = Array.isArray(value) ? value : [value];
    const types = list.filter((each) => typeof each === 'string');
    if (list.length === 0 || types.length < list.length || !types.every((each) => TYPES.includes(each)))
      this.#ignored(place, `must be one of ${TYPES.join(', ')}, or a list of them`);
    // A list without any type allows no value. A value that is no list of types states nothing.
    return Array.isArray(value) || types.length > 0 ? types : undefined;
  }

  /** The texts of a list. */
  #names(value: unknown, place: Place | null, message: string): readonly string[] {
    const list: readonly unknown[] = Array.isArray(value) ? value : [];
    const names = list.filter((each) => typeof each === 'string');
    if (!Array.isArray(value) || names.length < list.length) this.#ignored(place, message);
    return names;
  }

  /** Null for a pattern that is refused. */
  #pattern(source: string, place: Place | null): Pattern | null {
    const known = this.#patterns.get(source);
    if (known !== undefined || this.#isStopped) return known ?? null;
    // Remove escaped backslashes first: a `p` after one is only a letter.
    this.#propertyEscapes += source.replaceAll('\\\\', '').match(PROPERTY_ESCAPE)?.length ?? 0;
    let pattern: Pattern | null = null;
    if (this.#propertyEscapes > MAX_PROPERTY_ESCAPES)
      this.#unusable(
        place,
        `is refused: different patterns together may have at most ${MAX_PROPERTY_ESCAPES} character properties, such as \\p{Lu}`,
      );
    else if (this.#patterns.size >= MAX_PATTERNS)
      this.#unusableWhole(`it has more than ${MAX_PATTERNS} different patterns`);
    else pattern = this.#compiledPattern(source, place);
    if (pattern !== null) this.#patterns.set(source, pattern);
    return pattern;
  }

  #compiledPattern(source: string, place: Place | null): Pattern | null {
    let pattern: Pattern;
    try {
      pattern = new Pattern(source);
    } catch (error) {
      if (!(error instanceof PatternError)) throw error;
      const text = `pattern ${JSON.stringify(clipped(source, MAX_SHOWN_PATTERN))} ${error.message}`;
      this.#unusable(place, `is refused: the ${text}`, new PatternError(`The ${text}`, { cause: error }));
      return null;
    }
    this.#patternSteps += pattern.size;
    if (this.#patternSteps <= MAX_PATTERN_STEPS) return pattern;
    this.#unusableWhole(`its patterns have more than ${MAX_PATTERN_STEPS} steps together; repeat less in them`);
    return null;
  }

  #ignored(place: Place | null, message: string): void {
    if (this.#faults.length < MAX_FAULTS) this.#faults.push({ place, message, error: null });
  }

  #unusable(place: Place | null, message: string, error?: SchemaError | PatternError): void {
    this.#unusableCount += 1;
    const subject = place === null ? 'it' : pointerTo(place);
    this.#faults.push({ place, message, error: error ?? new SchemaError(`${subject} ${message}`) });
  }

  /** Reports that the schema as a whole exceeds a bound, and ends the compilation. */
  #unusableWhole(message: string): void {
    this.#unusable(null, `cannot be used: ${message}`, new SchemaError(message));
    this.#unusableCount = MAX_FAULTS;
  }
}

const inside = (parent: Place | null, step: string | number): Place => ({ parent, step });

const finite = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isFinite(value) ? value : undefined;

const entriesOf = (value: unknown): [string, unknown][] => (isObject(value) ? Object.entries(value) : []);

function isOneOf<T extends string>(list: readonly T[], text: string): text is T {
  return (list as readonly string[]).includes(text);
}

/** Maximum characters of a reference in an error message. */
const MAX_SHOWN_REFERENCE = 100;

/** Deepest nesting of schemas, unused ones included. */
export const MAX_SCHEMA_DEPTH = 64;

/** Keywords with inner schemas: one (`ofOne`), a list of them (`ofLists`), or an object of them by name (`ofNamed`). */
export const SCHEMA_KEYWORDS = {
  ofOne: [
    'items',
    'additionalItems',
    'unevaluatedItems',
    'contains',
    'additionalProperties',
    'unevaluatedProperties',
    'propertyNames',
    'not',
    'if',
    'then',
    'else',
  ],
  ofLists: ['prefixItems', 'allOf', 'anyOf', 'oneOf'],
  ofNamed: ['$defs', 'definitions', 'properties', 'patternProperties', 'dependentSchemas', 'dependencies'],
} as const;

/** Keywords with a reference. A value must fit the targets of all that a schema has. */
export const REFERENCE_KEYWORDS = ['$ref', '$recursiveRef', '$dynamicRef'] as const;

/** A schema that cannot be used. The message names the reason. */
export class SchemaError extends Error {
  override readonly name = 'SchemaError';
}

/** The schema at which references start: the nearest one with an `$id` (the schema itself or one around it), else the root. */
export interface Resource {
  readonly schema: JsonSchema;
  readonly place: Place | null;
  /** Schemas by the name of their anchor. */
  readonly anchors: Map<string, Located>;
}

/** A part of a schema, with its place in the whole schema. */
export interface Located {
  readonly value: unknown;
  readonly place: Place | null;
}

/**
 * The part of a schema to which a reference leads. That part may lie below a keyword that holds no schemas, such as `examples`.
 *
 * @throws SchemaError when the reference leads out of the schema, or to nothing
 */
export function resolve(reference: string, resource: Resource): Located {
  const shown = clipped(reference, MAX_SHOWN_REFERENCE);
  if (!reference.startsWith('#')) throw new SchemaError(`the $ref "${shown}" leads out of the schema`);
  const fragment = decoded(reference.slice(1));
  const found =
    fragment === '' || fragment.startsWith('/') ? atPointer(resource, fragment) : resource.anchors.get(fragment);
  if (found === undefined || !(typeof found.value === 'boolean' || isObject(found.value)))
    throw new SchemaError(`the $ref "${shown}" leads to no schema`);
  return found;
}

export function isObject(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value at a JSON pointer (RFC 6901). */
function atPointer(resource: Resource, pointer: string): Located | undefined {
  let value: unknown = resource.schema;
  let { place } = resource;
  for (const step of pointer.split('/').slice(1)) {
    const name = step.replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
    place = { parent: place, step: name };
  }
  return { value, place };
}

function decoded(fragment: string): string {
  try {
    return decodeURIComponent(fragment);
  } catch {
    throw new SchemaError(`the $ref "#${clipped(fragment, MAX_SHOWN_REFERENCE)}" has a wrong percent-encoding`);
  }
}

/**
 * A position in a value, as a linked list of steps. A step is a property name or the index of a list item. The list begins with the last step;
 * `parent` leads to the step before. Null is the value as a whole.
 */
export interface Place {
  readonly parent: Place | null;
  readonly step: string | number;
}

/** The first rule that a value breaks. */
export interface Fault {
  readonly place: Place | null;
  /** The end of a sentence that begins with the place, such as `is missing.`. */
  readonly message: string;
}

/** Maximum characters of a step in a pointer. Property names come from clients, so they may be long. */
const MAX_STEP_CHARACTERS = 100;
/** Maximum steps of a pointer. */
const MAX_STEPS = 20;

/** A place as a JSON pointer (RFC 6901). A pointer with too many steps keeps only the last ones. */
export function pointerTo(place: Place | null): string {
  const steps: (string | number)[] = [];
  for (let at = place; at !== null && steps.length < MAX_STEPS; at = at.parent) steps.unshift(at.step);
  return pointerOf(steps);
}

/** All steps of a place, first to last. */
export function stepsTo(place: Place | null): (string | number)[] {
  const steps: (string | number)[] = [];
  for (let at = place; at !== null; at = at.parent) steps.push(at.step);
  return steps.reverse();
}

/** Like {@link pointerTo}, for a list of steps that begins with the first step. */
export function pointerOf(steps: readonly PropertyKey[]): string {
  const escaped = (step: PropertyKey) =>
    clipped(String(step), MAX_STEP_CHARACTERS).replaceAll('~', '~0').replaceAll('/', '~1');
  return steps
    .slice(-MAX_STEPS)
    .map((step) => `/${escaped(step)}`)
    .join('');
}

/** The text, cut after `maxLength` characters. The mark `…` shows the cut. */
export function clipped(text: string, maxLength: number): string {
  return text.length > maxLength ? `${text.slice(0, maxLength)}…` : text;
}

/** JSON text of a value, cut after `maxLength` characters. Takes time in proportion to the characters that it keeps. */
export function shownJson(value: unknown, maxLength: number): string {
  let text = '';
  const write = (part: unknown): void => {
    if (text.length > maxLength) return;
    if (typeof part === 'string') text += JSON.stringify(part.slice(0, maxLength));
    else if (typeof part !== 'object' || part === null) text += JSON.stringify(part);
    else if (Array.isArray(part)) writeAll('[', part, (item) => write(item), ']');
    else
      writeAll(
        '{',
        Object.entries(part),
        ([name, member]) => {
          text += `${JSON.stringify(name.slice(0, maxLength))}:`;
          write(member);
        },
        '}',
      );
  };
  const writeAll = <T>(opening: string, parts: readonly T[], writePart: (part: T) => void, closing: string): void => {
    text += opening;
    for (const [index, part] of parts.entries()) {
      if (text.length > maxLength) return;
      if (index > 0) text += ',';
      writePart(part);
    }
    text += closing;
  };
  write(value);
  return clipped(text, maxLength);
}

/** A JSON Schema, restricted to what a manifest may use for a function's input. */
export interface JsonSchema {
  readonly [keyword: string]: unknown;
}

/** A fault of a schema. `path` leads from the whole schema to the faulty part. */
export interface SchemaFault {
  readonly path: readonly string[];
  readonly message: string;
}

/** Maximum faults in one answer. */
const MAX_ANSWER_FAULTS = 10;

/**
 * Finds the mistakes that make a schema useless, or that a check would ignore: a keyword of a wrong type, a pattern that cannot be matched in
 * linear time, a reference that leads nowhere, a subschema that is not a schema. It looks at all parts that a check may evaluate: the inner
 * schemas of keywords, and the targets of references, wherever they lie. It does not validate fully against the meta-schema.
 */
export function checkInputSchema(schema: unknown): SchemaFault[] {
  // The whole schema must be an object; a schema within it may also be a boolean.
  if (!isObject(schema)) return [{ path: [], message: 'must be a JSON Schema object' }];
  const { faults } = compile(schema);
  return faults
    .slice(0, MAX_ANSWER_FAULTS)
    .map(({ place, message }) => ({ path: stepsTo(place).map(String), message }));
}
