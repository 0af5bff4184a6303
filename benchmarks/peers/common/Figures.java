import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Locale;

/** Tells figures on standard output, one a line, as benchmarks/peers reads them. */
final class Figures {
    private Figures() {}

    static void tell(String figure, String unit, double value) {
        System.out.printf(Locale.ROOT, "sample\t%s\t%s\t%.3f%n", figure, unit, value);
    }

    /** CPU of this process so far, all threads together. */
    static double cpuSeconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    /** Tells percentiles of the first values in ms, and how many of them are early. */
    static void tellLateness(String where, double[] values, int count) {
        double[] ordered = Arrays.copyOf(values, count);
        Arrays.sort(ordered);
        tell("p50" + where, "ms", ordered[count / 2]);
        tell("p99" + where, "ms", ordered[(int) (count * 0.99)]);
        tell("p99.9" + where, "ms", ordered[(int) (count * 0.999)]);
        tell("max" + where, "ms", ordered[count - 1]);
        tell("early" + where, "records", Arrays.stream(ordered).filter(late -> late < 0).count());
    }
}
