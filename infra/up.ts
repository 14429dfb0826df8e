/**
 * The supervisor's program, behind `npm start` and `pie up`: pulls the models, starts every process, deploys the first bundled functions,
 * shows an answer of the first model as proof, and serves until it receives a signal. It deploys the other bundled functions in the background.
 */
import path from 'node:path';
import { readArguments } from './arguments.ts';
import { missingRedisServer } from './bootstrap/redis-server.js';
import { assertBundled, bundledFunctions, deployBundled, deployRest, firstFunctions } from './bundled.ts';
import { forgetCompiledCode, keepCompiledCode } from './compiled-code.ts';
import { type Config, gatewayUrl, loadConfig } from './config.ts';
import { ConfigError } from './config-error.ts';
import { assertRestored, claimHome } from './home.ts';
import { LIFELINE_VARIABLE } from './lifeline.ts';
import { openLog } from './log.ts';
import { type ClaimedMachine, claimMachine } from './machine-lease.ts';
import type { Role } from './machine-settings.ts';
import { PendingFunctions } from './pending-functions.ts';
import { assertPortFree } from './port.ts';
import { machineProcesses, privateRedis, stopStages } from './processes.ts';
import { runProgram } from './programs.ts';
import { Proofs } from './proof.ts';
import { RUNTIME } from './runtimes.ts';
import { ServingMark } from './serving-mark.ts';
import { type ChildSpec, ChildStartError } from './supervisor/child.ts';
import { ChildLog } from './supervisor/child-log.ts';
import { Supervisor, type SupervisorEvent } from './supervisor/supervisor.ts';

const HELP = `Starts the platform and serves until Ctrl-C.

  --role ROLES    roles of this machine: gateway, runtime, gpu-host, separated by commas (default: all); fewer need a Redis that machines share
  --no-story      do not show an answer of the first model, which proves that everything works, before serving
  --no-proof      ask no model for an answer, neither the first one before serving nor the others after that
  --functions a,b deploy these bundled functions alone, before serving (default: a few before serving, the others while the platform serves)
  --no-functions  deploy no bundled functions
  --json          one JSON object a line instead of text
  --help

Environment: PIE_HOME (.pie in the clone, ~/.pie of an installed Pie), PIE_PORT (8787), PIE_HOST (where the gateway listens; 127.0.0.1), REDIS_URL (a
private redis-server), PIE_MACHINE (name of this machine among those on one Redis; the host's name), PIE_ADDRESS (where the others reach it; none),
PIE_ROLES (as --role), PIE_MASTER_KEY (master.key in the home), PIE_MODEL (stories15m and minimind2-small), PIE_BACKEND (onnx, reference, cuda),
PIE_BITS (32, 8, 4), PIE_LOG_LEVEL (info, warn, error), PIE_LOG_FORMAT (text, json), PIE_CONFIG (a pie.toml; else the one in the home or
the clone).`;

async function main(): Promise<number> {
  const { values: flags } = readArguments(`${HELP}\n`, {
    options: {
      role: { type: 'string' },
      'no-story': { type: 'boolean', default: false },
      'no-proof': { type: 'boolean', default: false },
      'no-functions': { type: 'boolean', default: false },
      functions: { type: 'string' },
      json: { type: 'boolean', default: false },
    },
  });
  const say = flags.json ? () => undefined : (line: string) => console.log(line);
  const printEvent = flags.json ? (event: object) => console.log(JSON.stringify(event)) : () => undefined;

  if (flags.role !== undefined) process.env.PIE_ROLES = flags.role;
  const config = loadConfig();
  const serves = (role: Role) => config.machine.roles.includes(role);
  const requested = flags['no-functions'] ? [] : flags.functions?.split(',').filter((name) => name !== '');
  if (requested) assertBundled(config, requested);
  // A relative path must keep its meaning after this process changes to `config.root`, where its children start.
  if (process.env.PIE_CONFIG) process.env.PIE_CONFIG = path.resolve(process.env.PIE_CONFIG);
  process.chdir(config.root);
  keepCompiledCode(process.env);
  const redisProblem = config.redis.kind === 'private' ? missingRedisServer() : null;
  if (redisProblem !== null) throw new ConfigError(redisProblem);
  assertRestored(config);
  const releaseHome = claimHome(config);
  const logFile = new ChildLog(path.join(config.logsDirectory, 'supervisor.log'), (why) =>
    console.error(`The log of the supervisor cannot be written; lines are lost: ${why}`),
  );
  const write = (record: string) => logFile.write(`${record}\n`);
  const log = openLog('supervisor', config.log, undefined, write);
  // The terminal shows these events in other words.
  const decisions = openLog('supervisor', config.log, write);
  decisions.info({ pid: process.pid, roles: config.machine.roles }, 'the supervisor starts');
  const stopping = new AbortController();
  const whenStopped = new Promise<void>((resolve) => stopping.signal.addEventListener('abort', () => resolve()));
  listenForSignals(stopping, say);
  let code = 0;
  // The exit code of a start that is stopped before the platform serves. It is 1 when another machine has taken this
  // machine's name, and 130 after Ctrl-C. After every other signal it is 0, because a service manager that sends
  // SIGTERM takes every other code for a failure.
  const earlyExitCode = () => code || (stopping.signal.reason === 'SIGINT' ? 130 : 0);
  let machine: ClaimedMachine | null = null;
  const servingMark = new ServingMark(config, log);
  const supervisor = new Supervisor({
    logsDirectory: config.logsDirectory,
    log,
    decisions,
    report: (event) => {
      servingMark.note(event);
      report(event, say, printEvent);
    },
  });
  const startedAt = performance.now();
  try {
    // A gateway whose port is taken would die after each restart.
    if (serves('gateway')) await assertPortFree(config);
    const start = async (children: readonly ChildSpec[]) => {
      await Promise.race([supervisor.start(children), whenStopped]);
      return !stopping.signal.aborted;
    };
    if (config.redis.kind === 'private' && !(await start([privateRedis(config, config.redis)]))) return earlyExitCode();
    machine = await claimMachine(config, {
      onTaken: (error) => {
        console.error(`\n${error.message}\nThis machine stops.`);
        decisions.error(
          { cause: error.message },
          'another supervisor has taken the name of this machine, and this one stops',
        );
        code = 1;
        stopping.abort();
      },
      looks: () => supervisor.looks(),
      log,
      signal: stopping.signal,
    });
    if (machine === null) return earlyExitCode();
    const making = makeEngine(config, serves('runtime'), flags.json ? 'progress' : 'inherit', stopping.signal);
    // A start that ends before it needs the engine leaves this promise alone.
    making.catch(() => undefined);
    // A runtime needs the models and encoders, too: it reads their tokenizers.
    const models = serves('runtime') || serves('gpu-host') ? [...config.models, ...config.encoders] : [];
    for (const [kind, entries] of Map.groupBy(models, (entry) => ('kind' in entry ? entry.kind : undefined))) {
      const sources = new Set(entries.map(({ source }) => source));
      const pullExitCode = await runProgram(
        config,
        ['gpu-host/models/main.ts', 'pull', ...sources, ...(kind === undefined ? [] : ['--kind', kind])],
        { output: flags.json ? 'progress' : 'inherit', signal: stopping.signal },
      );
      if (stopping.signal.aborted) return earlyExitCode();
      if (pullExitCode !== 0)
        throw new ConfigError('A model could not be pulled; the output above says which one, and why.');
    }
    // A machine with a gateway but no runtime serves before it deploys, because another machine builds its functions.
    const isWhole = serves('gateway') && serves('runtime');
    const firstNames = isWhole ? (requested ?? firstFunctions(config)) : [];
    const allNames = serves('gateway') ? (requested ?? bundledFunctions(config)) : [];
    const later = allNames.filter((name) => !firstNames.includes(name));
    // The gateway reads this list, and does not call itself ready while a function that this start deploys first is missing.
    const pending = new PendingFunctions(config, { awaited: firstNames, later, log });
    // The runtime alone needs the engine.
    const { runtimes = [], others = [] } = Object.groupBy(machineProcesses(config), ({ name }) =>
      name === RUNTIME ? 'runtimes' : 'others',
    );
    const startRuntimes = async () => (await making) && (await start(runtimes));
    const started = await Promise.all([start(others), startRuntimes()]);
    if (started.includes(false)) return earlyExitCode();
    const first = await deployBundled(config, firstNames, { signal: stopping.signal, say, log: decisions });
    if (!stopping.signal.aborted && first === 'deployed') pending.deployed(firstNames);
    else if (first === 'upgrading') pending.change(firstNames, { isAwaited: false });
    else if (first === 'unreachable') say(`\n${missingText(firstNames)}`);
    const { signal } = stopping;
    const { noteProof } = machine;
    const proofs = new Proofs(config, {
      functions: flags['no-proof'] ? [] : firstNames,
      note: noteProof,
      report: (model, fault) => {
        printEvent({ kind: 'proof', model, fault });
        if (fault === null) {
          decisions.info({ model }, 'the model has answered, so it is proven');
          return;
        }
        decisions.warn({ model, fault }, 'the model has not answered, so it is unproven');
        say(`\n${unprovenText(model, fault)}`);
      },
      signal,
    });
    if (!flags['no-story'] && !flags.json && !signal.aborted) await proofs.show((text) => process.stdout.write(text));
    const url = gatewayUrl(config);
    if (!stopping.signal.aborted) {
      servingMark.begin();
      printEvent({
        kind: 'serving',
        url,
        machine: config.machine.name,
        home: config.home,
        pids: supervisor.pids(),
        logs: config.logsDirectory,
      });
      const tookMs = performance.now() - startedAt;
      say(serves('gateway') ? welcomeText(config, url, tookMs) : joinedText(config, tookMs));
    }
    const proving = proofs.rest();
    const laterNames = first === 'deployed' ? later : allNames;
    const deploying = deployRest(config, laterNames, { pending, signal, say, log: decisions });
    const compiledFolder = process.env.NODE_COMPILE_CACHE;
    const forgetting = compiledFolder ? forgetCompiledCode(compiledFolder, Date.now(), stopping.signal) : undefined;
    await whenStopped;
    await Promise.all([deploying, forgetting, proving]);
    return code;
  } catch (error) {
    decisions.error({ error }, 'the start failed');
    throw error;
  } finally {
    servingMark.end();
    let isCutShort = false;
    const stopAtOnce = () => {
      isCutShort = true;
      say('Stopping at once.');
      decisions.warn({}, 'the drain was cut short, and every process is killed');
      supervisor.kill();
    };
    process.on('SIGINT', stopAtOnce);
    const { reason } = stopping.signal;
    const signal = typeof reason === 'string' ? reason : null;
    if (stopping.signal.aborted)
      decisions.info({ signal, drainMs: config.drainMs }, 'the supervisor stops the machine');
    if (stopping.signal.aborted) say(`Draining (up to ${config.drainMs / 1000} s; Ctrl-C again stops at once) …`);
    // The lease publishes what the supervisor sees of the draining processes, so that none loses its work for lack of a core. Other machines may
    // use this machine's GPU hosts until they have stopped. Only a private Redis still runs then.
    await supervisor.stop(stopStages(config), async () => {
      if (isCutShort && config.redis.kind === 'private') machine?.abandon();
      else await machine?.release();
    });
    releaseHome();
    decisions.info({}, 'the supervisor has stopped');
    await logFile.end();
    say('Stopped.');
  }
}

/**
 * Makes the engine that runs scripts, unless this installation has it. Resolves to false when the signal aborts.
 * @throws ConfigError when the engine cannot be made
 */
async function makeEngine(
  config: Config,
  isNeeded: boolean,
  output: 'progress' | 'inherit',
  signal: AbortSignal,
): Promise<boolean> {
  if (!isNeeded) return !signal.aborted;
  const code = await runProgram(config, ['runtime/pool/engine-main.ts'], { output, signal });
  if (code !== 0 && !signal.aborted)
    throw new ConfigError('The engine of scripts could not be made; the output above says why.');
  return !signal.aborted;
}

function listenForSignals(stopping: AbortController, say: (line: string) => void): void {
  const stop = (cause?: NodeJS.Signals | Error) => {
    if (!stopping.signal.aborted) say('');
    stopping.abort(cause);
  };
  // The handlers stay after the first signal, because a second one would end this process in the middle of the drain. A
  // second SIGTERM is usual: a service manager may signal every process, and `pie up` forwards its own SIGTERM to this
  // process. Only a SIGINT may cut the drain short (`stopAtOnce`).
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, stop);
  // A parent that owns this platform (such as a test) holds the lifeline's other end. The children get lifelines of their own.
  if (process.env[LIFELINE_VARIABLE] === 'stdin') process.stdin.once('end', stop).once('error', stop).resume().unref();
  delete process.env[LIFELINE_VARIABLE];
}

function report(event: SupervisorEvent, say: (line: string) => void, printEvent: (event: object) => void): void {
  printEvent(event);
  if (event.kind === 'ready') {
    say(
      `  ${event.restarted ? 'restarted' : 'started'} ${event.name} (process ${event.pid}, ${(event.afterMs / 1000).toFixed(1)} s)`,
    );
    if (event.notice !== undefined) say(`  NOTICE of ${event.name}: ${event.notice}`);
    return;
  }
  say(`  ${event.name} died (${event.why}); it starts again in ${event.restartInMs} ms`);
}

const unprovenText = (model: string, fault: string): string =>
  `WARNING: the model ${model} has not answered: ${fault}\nIt is served all the same. \`pie doctor\` shows whether a later attempt succeeds.`;

const missingText = (names: readonly string[]): string =>
  `WARNING: the platform did not answer while it got its first functions. These may be missing: ${names.join(', ')}.
Pie deploys them while the platform serves, and tries again until they are there; \`pie list\` and /readyz say what is missing.`;

function welcomeText(config: Config, url: string, tookMs: number): string {
  return `
Ready in ${(tookMs / 1000).toFixed(1)} s.

  URL        ${url}
  Dashboard  ${url}/dashboard (sign in with the API key)
  API key    ${path.join(config.home, 'credentials.json')}
  Logs       ${config.logsDirectory}

Try:
  npx pie invoke text-completion --input '{"prompt":"Once upon a time","maxTokens":80}'
  npx pie invoke chat-completion --input '{"messages":[{"role":"user","content":"What is the capital of France?"}],"temperature":0}'
  npx pie invoke parallel-generation --input '{"prompt":"The little dog","branches":3}'
  npx pie demo --round-trip 20
  npx pie list

Ctrl-C stops it.`;
}

function joinedText({ machine, logsDirectory }: Config, tookMs: number): string {
  return `
Ready in ${(tookMs / 1000).toFixed(1)} s: the machine ${machine.name} serves as ${machine.roles.join(' and ')}.

  Logs     ${logsDirectory}

Ctrl-C stops it.`;
}

try {
  process.exitCode = await main();
} catch (error) {
  process.exitCode = 1;
  if (error instanceof ConfigError || error instanceof ChildStartError) console.error(`\n${error.message}`);
  else console.error(error);
}
