import { silentLog } from '#scheduler/testing/log.ts';
import { openScheduler } from '../scheduler.ts';
import { openConnection } from '../store/connection.ts';

/**
 * A runtime in its own process, for tests that kill it. It begins each invocation, writes one message and does not end
 * the invocation. Only the second attempt at an invocation with the input `"finish"`, and later ones, end it.
 * Arguments: socket, prefix, name, lease in ms, name of its machine (none when empty). The process prints `ready RUNTIME`, `begun ID ATTEMPT` for each
 * attempt, `stopped ID REASON OUTCOME` for each attempt that was aborted, and `lost` when its lease is lost. It exits
 * when its standard input ends.
 */
const [socket = '', prefix = '', name = '', leaseMs = '', machine = ''] = process.argv.slice(2);
const scheduler = openScheduler({
  log: silentLog,
  connect: () => openConnection(socket),
  prefix,
  leaseMs: Number(leaseMs),
});
const lease = await scheduler.runtimes.acquire({
  name,
  slots: 1000,
  pid: process.pid,
  ...(machine !== '' && { machine }),
});
lease.onLost(() => console.log('lost'));
const worker = scheduler.createWorker({
  lease,
  slots: 1000,
  run: async (job, signal) => {
    const { invocations } = scheduler;
    const attempt = await invocations.beginAttempt(job.id, lease.id);
    if ('refused' in attempt) return;
    const { epoch, nextSeq } = attempt;
    await invocations.append(job.id, epoch, nextSeq, [{ event: 'message', data: JSON.stringify({ text: name }) }]);
    console.log(`begun ${job.id} ${attempt.attempt}`);
    if (attempt.attempt > 1 && job.input === '"finish"') {
      await invocations.finish(job.id, epoch, nextSeq + 1, { event: 'result', data: '{}' }, null);
      return;
    }
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    // Too late: a runtime that was declared dead can write nothing more.
    const lateMessage = { event: 'message', data: '{"text":"late"}' } as const;
    const outcome = await invocations.append(job.id, epoch, nextSeq + 1, [lateMessage]);
    console.log(`stopped ${job.id} ${signal.reason.code} ${outcome}`);
  },
});
await worker.start();
process.stdin.resume().on('end', () => process.exit());
console.log(`ready ${lease.id}`);
