import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM: starting one for each would take most of the time.
 *
 * <p>Read from standard input, each as a length and UTF-8 bytes: the number of arguments, the class, the arguments, and
 * what the tool shall read. Written to standard output in the same way: exit status, output, errors.
 */
public final class Tools {
    /** A tool wanted to end the process. */
    static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static volatile int status;
    private static volatile boolean ended;

    public static void main(String[] ignored) throws Exception {
        DataInputStream commands = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Exit.setExitProcedure((code, message) -> {
            // The first counts: some tools catch what is thrown here and end once more, with an error.
            if (!ended) {
                status = code;
                ended = true;
            }
            throw new Ended();
        });
        while (true) {
            int count;
            try {
                count = Integer.parseInt(read(commands));
            } catch (EOFException end) {
                return;
            }
            String name = read(commands);
            String[] arguments = new String[count];
            for (int i = 0; i < count; i++) {
                arguments[i] = read(commands);
            }
            run(name, arguments, read(commands), answers);
        }
    }

    private static void run(String name, String[] arguments, String input, DataOutputStream answers) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        status = 0;
        ended = false;
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, "UTF-8"));
        System.setErr(new PrintStream(err, true, "UTF-8"));
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                status = 1;
                thrown.getCause().printStackTrace();
            }
        }
        System.out.flush();
        System.err.flush();
        write(answers, String.valueOf(status));
        write(answers, out.toString(StandardCharsets.UTF_8));
        write(answers, err.toString(StandardCharsets.UTF_8));
        answers.flush();
    }

    private static String read(DataInputStream from) throws Exception {
        byte[] bytes = new byte[from.readInt()];
        from.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static void write(DataOutputStream to, String text) throws Exception {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        to.writeInt(bytes.length);
        to.write(bytes);
    }
}
