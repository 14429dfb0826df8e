import { defineCommand } from '../command.ts';
import { EXIT } from '../failure.ts';
import { counted } from '../format.ts';

const MARKS = { ok: 'ok  ', warning: 'warn', failed: 'FAIL' } as const;

export const doctor = defineCommand({
  name: 'doctor',
  summary: 'Check everything that the platform needs, and print remedies',
  description:
    'Checks Node, packages, redis-server, models, credentials, the configuration and the cards that it names, the port, and the running platform part by part.',
  examples: [{ line: 'pie doctor', does: 'exits with 5 when a check fails' }],
  async run({ terminal, signal }) {
    // Import it here: the schema of the configuration takes longer to load than all other modules of the command together.
    const { checkAll } = await import('../doctor/checks.ts');
    const findings = [];
    for await (const finding of checkAll(signal)) {
      findings.push(finding);
      terminal.print(`${MARKS[finding.state]}  ${finding.name}: ${finding.detail}`);
      if (finding.advice !== undefined) terminal.print(`      what to do: ${finding.advice}`);
    }
    const failedCount = findings.filter((finding) => finding.state === 'failed').length;
    const warningCount = findings.filter((finding) => finding.state === 'warning').length;
    terminal.value({ healthy: failedCount === 0, findings });
    if (failedCount > 0) terminal.print(`${counted(failedCount, 'check')} failed.`);
    else
      terminal.print(
        warningCount > 0 ? `No check failed; ${counted(warningCount, 'warning')}.` : 'Every check passed.',
      );
    return failedCount === 0 ? EXIT.ok : EXIT.unhealthy;
  },
});
