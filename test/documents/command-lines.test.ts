import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { createApp } from '#gateway/app/app.ts';
import type { ControlPlane } from '#gateway/app/control.ts';
import { allCommands } from '#gateway/cli/commands/index.ts';
import { parse } from '#gateway/cli/program.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { BENCHES } from '#test/bench/benches.ts';
import { ROOT } from '#test/harness/platform.ts';
import { documents, examplesIn } from './examples.ts';

/** A command in a document. */
interface CommandLine {
  /** The document, with a line number if the command is in a code block. */
  readonly place: string;
  /** The words of the command, without quotes. */
  readonly words: readonly string[];
}

/** Words that precede a program because another program starts it. */
const STARTERS = /^(?:npx|npm run(?= pie )|docker compose .*? exec pie) /;

/**
 * The simple commands of a shell script. Understands what the documents use of the shell's language: quotes, comments, lists, pipes, variables before
 * a command.
 */
function commandsOf(script: string, place: string): CommandLine[] {
  const commands: string[][] = [[]];
  // The groups are text in single quotes, text in double quotes, the end of a command, and plain text.
  const token = /\\\n|'([^']*)'|"((?:\\.|[^"\\])*)"|(?<=^|\s)#.*|(\n|&&|\|\|?|;)|([^\s'"|;&\\]+|[&\\])|\s+/g;
  let followsText = false;
  for (const [, single, double, end, plain] of script.matchAll(token)) {
    const text = single ?? double?.replaceAll(/\\(["\\$`])/g, '$1') ?? plain;
    const words = commands.at(-1) ?? [];
    if (end !== undefined) commands.push([]);
    // Quotes may begin in the middle of a word.
    else if (text !== undefined && followsText) words.push(`${words.pop()}${text}`);
    else if (text !== undefined) words.push(text);
    followsText = text !== undefined;
  }
  return commands.filter((words) => words.length > 0).map((words) => ({ place, words: withoutStarter(words) }));
}

/** Removes variables and starting programs from the beginning of a command. */
function withoutStarter(words: readonly string[]): readonly string[] {
  const withoutVariables = words.slice(words.findIndex((word) => !/^\w+=/.test(word)));
  const [starter = ''] = STARTERS.exec(withoutVariables.join(' ')) ?? [];
  return withoutVariables.slice(starter.split(' ').length - 1);
}

const shellCommands = (): CommandLine[] => examplesIn('sh').flatMap(({ code, place }) => commandsOf(code, place));

/** Code spans of all documents, outside of code blocks. Omits the changelog, which also names commands of earlier versions and misspelt ones. */
function codeSpans(): { readonly document: string; readonly code: string }[] {
  const current = documents().filter((document) => document !== 'CHANGELOG.md');
  return current.flatMap((document) => {
    const prose = readFileSync(path.join(ROOT, document), 'utf8').replaceAll(/^```.*?^```$/gms, '');
    return [...prose.matchAll(/`([^`]+)`/g)].map(([, code = '']) => ({ document, code: code.replaceAll(/\s+/g, ' ') }));
  });
}

const isPie = ([program = '']: readonly string[]): boolean => program === 'pie' || program.endsWith('/cli/bin.js');

const COMMANDS = await allCommands();
/** The help of `pie up`, whose flags another program parses. */
const UP_HELP = readFileSync(path.join(ROOT, 'infra/up.ts'), 'utf8');

/** The fault of a `pie` command line, or null. */
function faultOf([, ...args]: readonly string[]): string | null {
  const [command = '', name = ''] = args;
  // An option, `all` or the placeholder `NAME` may take the place of a benchmark's name.
  if (command === 'bench' && !/^(?:-|all$|NAME$|$)/.test(name) && !BENCHES.has(name))
    return `There is no benchmark ${name}.`;
  const flag =
    command === 'up'
      ? args.find((arg) => arg.startsWith('--') && !new RegExp(`^  ${arg}\\b`, 'm').test(UP_HELP))
      : undefined;
  if (flag !== undefined) return `There is no flag ${flag}.`;
  try {
    parse(COMMANDS, '0.0.0', args);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

test('each `pie` command in a shell example has a command, options and arguments that exist', () => {
  const lines = shellCommands().filter(({ words }) => isPie(words));
  assert.ok(lines.length > 80, `${lines.length} commands`);
  const faults = lines.flatMap(({ place, words }) => {
    const fault = faultOf(words);
    return fault === null ? [] : [`${place}: ${words.join(' ')}: ${fault}`];
  });
  assert.deepEqual(faults, []);
});

test('each `pie` command in the text exists, with its options', () => {
  const spans = codeSpans().filter(({ code }) => /^(?:npx )?pie [a-z-]/.test(code));
  assert.ok(spans.length > 100, `${spans.length} commands`);
  const groups = new Set(
    COMMANDS.map(({ name }) => name.split(' ')).flatMap(([group, member]) => (member ? [`${group}`] : [])),
  );
  const faults = spans.flatMap(({ document, code }) => {
    const [{ words } = { words: [] }] = commandsOf(code, document);
    if (words.length === 2 && groups.has(words[1] ?? '')) return [];
    const fault = faultOf(words.filter((word) => word !== '…'));
    // The text may leave out arguments.
    return fault === null || /^Missing|argument missing/.test(fault) ? [] : [`${document}: ${code}: ${fault}`];
  });
  assert.deepEqual(faults, []);
});

test('each script of `npm run` in the documents exists', () => {
  const { scripts } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
  const inText = codeSpans().flatMap(({ document, code }) => commandsOf(code, document));
  const named = [...shellCommands(), ...inText].flatMap(({ place, words: [program, run, name] }) =>
    program === 'npm' && run === 'run' && name !== undefined ? [{ place, name }] : [],
  );
  assert.ok(named.length > 20, `${named.length} scripts`);
  assert.deepEqual(
    named.filter(({ name }) => !Object.hasOwn(scripts, name)),
    [],
  );
});

test('each route that the documents name is in the description of the API', async () => {
  const app = createApp({} as ControlPlane, { log: silentLog });
  const { paths } = (await (await app.request('/openapi.json')).json()) as {
    paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  };
  const routes = Object.entries(paths).map(([route, methods]) => ({
    pattern: new RegExp(`^${route.replaceAll(/\{.*?\}/g, '[^/]+')}$`),
    methods: Object.keys(methods),
  }));
  // If the document names no method, the route may have any.
  const isRoute = (method: string | undefined, route: string) =>
    routes.some(
      ({ pattern, methods }) => pattern.test(route) && (method === undefined || methods.includes(method.toLowerCase())),
    );

  const called = shellCommands().flatMap(({ place, words }) => {
    const address = words.find((word) => /^(?:http:\/\/127\.0\.0\.1:8787|\$PIE_URL)\//.test(word));
    if (words[0] !== 'curl' || address === undefined) return [];
    const methodOption = words.findIndex((word) => word === '-X' || word === '--request');
    const hasBody = words.some((word) => /^(?:-d|--data.*|--json)$/.test(word));
    const defaultMethod = hasBody ? 'POST' : 'GET';
    const method = methodOption === -1 ? defaultMethod : words[methodOption + 1];
    return [{ place, method, route: address.replace(/^http:\/\/[^/]*|^\$PIE_URL|\?.*$/g, '') }];
  });
  const named = codeSpans().flatMap(({ document, code }) => {
    const [, method, route] =
      /^(?:(GET|HEAD|POST|PUT|PATCH|DELETE) )?(\/v1\/[\w./:{}-]*\w\}?)(?:\?.*)?$/.exec(code) ?? [];
    return route === undefined ? [] : [{ place: document, method, route }];
  });
  assert.ok(
    called.length >= 6 && named.length > 30,
    `${called.length} curl commands, ${named.length} routes in the text`,
  );
  assert.deepEqual(
    [...called, ...named].filter(({ method, route }) => !isRoute(method, route)),
    [],
  );
});
