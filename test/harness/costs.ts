/**
 * `npm run test:costs [FILE]`: lists the test files that take the most processor time, and what only they assert. It runs `npm test` and
 * `npm run test:ci` first, or takes the costs from a FILE that such a run has written because `PIE_TEST_COSTS` named it.
 */

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { ROOT } from './platform.ts';

/** Number of listed files. */
const LISTED = 30;

interface Cost {
  readonly file: string;
  readonly cpuSeconds: number;
  readonly ms: number;
}

/** What no other test asserts, for the dearest test files. Write a line for each file that the script lists without one. */
export const ONLY_HERE: Readonly<Record<string, string>> = {
  'functions/advanced-rag/advanced-rag.test.ts':
    'each mode answers the same with all passes of the workflow library and with none',
  'functions/ebnf-decoding/ebnf-decoding.test.ts':
    "the host's grammar engine and a bundled Earley parser give the same tokens",
  'functions/function-calling/function-calling.test.ts':
    'the saved steps of reused prompts, eager calls and forgotten specifications',
  'functions/mcp-agent/mcp-agent.test.ts':
    'conversations with an MCP server, its broken replies, and the ends of its sessions',
  'functions/openai-chat/openai-chat.test.ts':
    'every parameter of the chat route, whole and streamed: tools, schemas, log-probabilities, images',
  'functions/openai-completions/openai-completions.test.ts':
    'scores of prompts equal those of the float64 reference; echo, several choices and prompts',
  'functions/openai-shared/thoughts.test.ts':
    'thoughts of two formats of models: division from the answer, budget, effort, whole and streamed',
  'functions/sdk/src/combined-options.test.ts':
    'combinations of options of generate keep the tokens of stepwise decoding',
  'functions/sdk/src/constrain/jump.test.ts': 'jump-forward decoding keeps texts and contexts, and takes fewer steps',
  'functions/sdk/src/context/long-text.test.ts': 'long texts, tokenized in parts, have the tokens of the whole text',
  'functions/sdk/src/core.test.ts':
    'no option of the library changes an output that it should keep; contexts stay usable after failures',
  'functions/text-completion/text-completion.test.ts':
    'stop strings across tokens (and the start of the shared platform)',
  'gateway/cli/backup/backup.test.ts':
    'what a backup contains, and how a restore that breaks off is finished or refused',
  'gateway/cli/cli.test.ts': 'exit codes, help, completion scripts and new projects of the command, without a platform',
  'gateway/cli/dev/dev.test.ts': 'pie dev: its own platform, every save, and its end, also after a kill',
  'gateway/cli/platform.test.ts': 'the printed texts, exit codes and signals of the command against a whole platform',
  'gateway/local/testing.test.ts': 'pie/testing: results, errors, and what it leaves behind',
  'gateway/testing/http/suite.ts': 'every route answers the same on Node and in workerd, and as its schema says',
  'gpu-host/backends/adapter.test.ts': 'each backend computes with low-rank adapters as with merged weights',
  'gpu-host/backends/cuda/card/harness.test.ts':
    'the program that checks and measures a card finds wrong weights and damaged fixtures',
  'gpu-host/backends/cuda/host.test.ts': 'a failing or hanging card ends the host with its cause',
  'gpu-host/backends/cuda/native-emulated.test.ts':
    'the kernels and the engine in C++, each case on the CPU under sanitizers',
  'gpu-host/backends/cuda/parity.test.ts':
    'each precision of the CUDA backend equals the float64 reference, over shapes and masks',
  'gpu-host/backends/golden.test.ts': 'each backend decodes the tokens of llama2.c on a trained model',
  'infra/supervisor/supervisor.test.ts':
    'the supervisor replaces children that die, hang or spin, and spares paused ones',
  'runtime/build/script/guest.test.ts': 'the globals, packages and ends of scripts; their heaps without freed memory',
  'runtime/pool/scripts.test.ts':
    'an evaluation: its result, its refusals, and its end with the process that started it',
  'runtime/grammar/jump.test.ts': 'forced tokens equal stepwise decoding, for grammars of random seeds',
  'runtime/host/memory/durable.test.ts':
    'durable names: losses of hosts and disks, damaged files, bounds and removals at every moment',
  'runtime/isolation.test.ts':
    'a machine without user namespaces: it says so, runs functions, and never leaves out what is required',
  'runtime/releases.test.ts': 'instances follow the aliases of a function while streams run',
  'runtime/runtime.test.ts': 'each misbehaviour of a guest ends as its own error; the runtime serves on',
  'runtime/texts/service.test.ts': 'tokens equal those of an independent tokenizer; tenants take turns',
  'scheduler/admission/worker.test.ts': 'admission on a real Redis: order, claims, outages and several runtimes',
  'test/browser/dashboard.test.ts':
    'every page in a browser: looks, contrast, keyboard, live updates, forms, loss of the gateway',
  'test/chaos/clock.test.ts': "a step of one process's wall clock ends no invocation and counts none twice",
  'test/chaos/kill-all.test.ts':
    'all processes die at once: nothing is left, and the next start settles every invocation',
  'test/chaos/kill.test.ts':
    'a runtime dies in each phase of an invocation: one end, one bill, only restartable ones rerun',
  'test/chaos/stop.test.ts': 'stopped processes and a paused machine: who is replaced, and who is not',
  'test/e2e/backup.test.ts': 'pie backup and pie restore carry a platform that was destroyed to a new home',
  'test/e2e/cache.test.ts':
    'saved contexts outlive the process of a GPU host and the platform; other weights refuse them',
  'test/e2e/chaos.test.ts': 'a kill of each process under running streams, and their end with a typed code',
  'test/e2e/flood.test.ts': "the share of a tenant beside a flood; deploys wait for a runtime's replacement",
  'test/e2e/joined-machines.test.ts':
    'machines join by token where the system has no network namespaces; kill -9 and removal of a machine',
  'test/e2e/lifecycle.test.ts': 'drains, signals during a start, and two platforms on one machine',
  'test/e2e/machines.test.ts': 'machines that share a Redis take each invocation once, and leave cleanly',
  'test/e2e/network-namespaces.test.ts': 'pulled cables between machines, in either direction, cost an invocation once',
  'test/e2e/npm-start.test.ts': 'npm start without configuration, and the commands of the README, in a fresh clone',
  'test/e2e/outside.test.ts': 'the published packages outside of the clone: templates, their tests, deploys',
  'test/e2e/pressure.test.ts':
    'more inferlets than memory on a platform: pages are swapped out and come back unchanged',
  'test/e2e/secrets.test.ts': 'no secret in Redis, logs or files; the table of keys names every key of Redis',
  'test/e2e/several-hosts.test.ts': 'two GPU hosts: spreading, affinity, drains, the loss of one and of both',
  'test/e2e/shared-names.test.ts':
    'names of contexts and files that two GPU hosts share, through losses of hosts and disks',
  'test/e2e/unproven.test.ts': 'a model whose proof fails is served, and every surface says why',
  'test/fuzz/components/fuzz-components.test.ts': 'mutated components end with a typed code',
  'test/hostile/hostile.test.ts': 'attacks of every class on a platform harm no neighbour and leave nothing behind',
  'test/layouts/loading.test.ts': 'the metadata of 14 published models load as their authors state',
  'test/layouts/platforms.test.ts': 'whole platforms on two published layouts of models: chat, tools, schemas',
  'test/oracles/minimind2.test.ts':
    'log-probabilities equal those of the graph that PyTorch exported, and of transformers.js',
  'test/telemetry/telemetry.test.ts':
    "traces and metrics in a real OTLP collector; Grafana's dashboard uses existing metrics",
};

/** Runs all tests. Returns the costs of their files. */
function measured(): readonly Cost[] {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-costs-'));
  try {
    const file = path.join(folder, 'costs');
    const command = [path.join(ROOT, 'infra/bootstrap/testing/test.js'), '--all'];
    const { status } = spawnSync(process.execPath, command, {
      env: { ...process.env, PIE_TEST_COSTS: file },
      stdio: 'inherit',
    });
    if (status !== 0) console.error('\nNot all tests passed: the costs below are those of the files that ran.');
    return existsSync(file) ? costsIn(file) : [];
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The costs in a file that `infra/bootstrap/testing/report.ts` has written. A file of tests that ran twice counts twice. */
function costsIn(file: string): readonly Cost[] {
  const sums = new Map<string, Cost>();
  for (const line of readFileSync(file, 'utf8').trim().split('\n')) {
    const { file, cpuSeconds, ms } = JSON.parse(line) as Cost;
    const known = sums.get(file);
    sums.set(file, { file, cpuSeconds: cpuSeconds + (known?.cpuSeconds ?? 0), ms: ms + (known?.ms ?? 0) });
  }
  return [...sums.values()].sort((a, b) => b.cpuSeconds - a.cpuSeconds);
}

const seconds = (value: number): string => `${value.toFixed(1)} s`.padStart(10);

if (import.meta.main) {
  const [kept] = process.argv.slice(2);
  const costs = kept === undefined ? measured() : costsIn(kept);
  const total = costs.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0);
  console.log(
    `\n${costs.length} test files took ${total.toFixed(0)} s of processor time. The dearest (processor time, duration):`,
  );
  for (const { file, cpuSeconds, ms } of costs.slice(0, LISTED)) {
    console.log(`${seconds(cpuSeconds)}${seconds(ms / 1000)}  ${file}`);
    console.log(`${' '.repeat(24)}only here: ${ONLY_HERE[file] ?? 'not described yet; write a line in ONLY_HERE'}`);
  }
}
