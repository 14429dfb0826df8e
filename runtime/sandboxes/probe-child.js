/** Shows the probe that a confined process runs. */
process.stdout.write('confined');
