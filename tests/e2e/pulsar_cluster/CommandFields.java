import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.pulsar.common.api.proto.BaseCommand;
import org.apache.pulsar.common.api.proto.FeatureFlags;
import org.apache.pulsar.common.api.proto.ProtocolVersion;

/**
 * What the classes made from Pulsar's PulsarApi.proto have, one a line: `type NUMBER` for each command, `text NUMBERS
 * NAME` for each field with text, by the numbers of the fields that lead to it, `version NUMBER` and `flag NUMBER`.
 */
public class CommandFields {
    public static void main(String[] arguments) throws Exception {
        for (BaseCommand.Type type : BaseCommand.Type.values()) {
            System.out.println("type " + type.getValue());
        }
        for (ProtocolVersion version : ProtocolVersion.values()) {
            System.out.println("version " + version.getValue());
        }
        for (Field field : FeatureFlags.class.getDeclaredFields()) {
            if (field.getName().endsWith("_FIELD_NUMBER")) {
                System.out.println("flag " + number(field));
            }
        }
        walk(BaseCommand.class, "", List.of());
    }

    private static void walk(Class<?> message, String path, List<Class<?>> around) throws Exception {
        List<Class<?>> within = new ArrayList<>(around);
        within.add(message);
        for (Field field : message.getDeclaredFields()) {
            if (!field.getName().endsWith("_FIELD_NUMBER")) {
                continue;
            }
            String place = path.isEmpty() ? "" + number(field) : path + "." + number(field);
            String name = field.getName().replace("_FIELD_NUMBER", "").replace("_", "").toLowerCase(Locale.ROOT);
            Class<?> kind = kind(message, name);
            if (kind == String.class) {
                System.out.println("text " + place + " " + name);
            } else if (!within.contains(kind) && kind.getPackage() == BaseCommand.class.getPackage()) {
                walk(kind, place, within);
            }
        }
    }

    /** The type of a field, or of the elements of a repeated one. */
    private static Class<?> kind(Class<?> message, String name) {
        for (Method method : message.getMethods()) {
            String said = method.getName().toLowerCase(Locale.ROOT);
            if (said.equals("get" + name) || said.equals("is" + name)) {
                return method.getReturnType();
            }
            if (said.equals("get" + name + "list") && method.getReturnType() == List.class) {
                Type element = ((ParameterizedType) method.getGenericReturnType()).getActualTypeArguments()[0];
                return (Class<?>) element;
            }
        }
        return int.class; // repeated numbers
    }

    private static int number(Field field) throws IllegalAccessException {
        field.setAccessible(true);
        return field.getInt(null);
    }
}
